from __future__ import annotations

import io
import sys

import pytest

from fleetctl.cli import console
from fleetctl.cli.console import ColorChoice, in_ci, wants_color, width_for
from fleetctl.errors import UsageError


@pytest.mark.parametrize(("choice", "environ", "is_terminal", "color"), [
    ("auto", {}, True, True),
    ("auto", {}, False, False),
    ("auto", {"TERM": "dumb"}, True, False),
    ("auto", {"NO_COLOR": "1"}, True, False),
    ("auto", {"NO_COLOR": ""}, True, True),
    ("auto", {"FORCE_COLOR": "1"}, False, True),
    ("auto", {"FORCE_COLOR": ""}, False, False),
    ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ("always", {"NO_COLOR": "1"}, False, True),
    ("never", {"FORCE_COLOR": "1"}, True, False),
])
def test_colour_is_decided_by_flag_then_environment_then_stream(
    choice: str, environ: dict[str, str], is_terminal: bool, color: bool
) -> None:
    assert wants_color(ColorChoice(choice), environ, is_terminal=is_terminal) is color


@pytest.mark.parametrize(("environ", "ci"), [
    ({}, False), ({"CI": "true"}, True), ({"CI": "false"}, False), ({"CI": ""}, False),
    ({"GITHUB_ACTIONS": "true"}, True),
])
def test_ci_is_recognised(environ: dict[str, str], ci: bool) -> None:
    assert in_ci(environ) is ci


@pytest.mark.parametrize(("environ", "is_terminal", "width"), [
    ({}, True, None), ({}, False, 120), ({"CI": "1"}, True, 120), ({"COLUMNS": "80"}, False, 80),
    ({"COLUMNS": "0"}, False, 120), ({"COLUMNS": "wide"}, False, 120),
])
def test_the_width_is_the_terminals_or_fixed(environ: dict[str, str], is_terminal: bool, width: int | None) -> None:
    assert width_for(environ, is_terminal=is_terminal) == width


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match="no terminal"):
        console.confirm("Go ahead?", yes=False)


def test_yes_on_the_command_line_needs_no_terminal() -> None:
    assert console.confirm("Go ahead?", yes=True) is True


@pytest.mark.parametrize(("typed", "answer"), [
    ("y\n", True), ("YES\n", True), ("\n", False), ("n\n", False), ("", False),
])
def test_only_yes_is_yes(
    typed: str, answer: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "may_ask", lambda: True)
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert console.confirm("Go ahead?", yes=False) is answer
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Go ahead? [y/N]" in shown.err


def test_a_message_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("error", "a \x1b[2J [bold]b[/bold]\nc")
    assert capsys.readouterr().err == "error: a \\x1b[2J [bold]b[/bold]\nc\n"
