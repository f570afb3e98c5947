from __future__ import annotations

import io
import json
import re
import sys
from contextlib import suppress

import pytest

from fleetctl.cli import console
from fleetctl.cli.console import in_ci, wants_color, width_for
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
def test_color_is_decided_by_flag_then_environment_then_stream(
    choice: str, environ: dict[str, str], is_terminal: bool, color: bool
) -> None:
    assert wants_color(choice, environ, is_terminal=is_terminal) is color


@pytest.mark.parametrize(("environ", "ci"), [
    ({}, False), ({"CI": "true"}, True), ({"CI": "false"}, False), ({"CI": ""}, False),
    ({"GITHUB_ACTIONS": "true"}, True),
])
def test_ci_is_recognized(environ: dict[str, str], ci: bool) -> None:
    assert in_ci(environ) is ci


@pytest.mark.parametrize(("environ", "is_terminal", "width"), [
    ({}, True, None), ({}, False, 120), ({"CI": "1"}, True, 120), ({"COLUMNS": "80"}, False, 80),
    ({"COLUMNS": "0"}, False, 120), ({"COLUMNS": "wide"}, False, 120), ({"COLUMNS": "²"}, False, 120),
])
def test_the_width_is_the_terminals_or_fixed(environ: dict[str, str], is_terminal: bool, width: int | None) -> None:
    assert width_for(environ, is_terminal=is_terminal) == width


def test_without_a_terminal_there_is_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match="no terminal"):
        console.confirm("Go ahead?", yes=False)


def test_yes_on_the_command_line_needs_no_terminal() -> None:
    assert console.confirm("Go ahead?", yes=True) is True


@pytest.mark.parametrize(("typed", "answer"), [
    ("y\n", True), ("YES\n", True), ("\n", False), ("n\n", False), ("", False),
])
def test_only_yes_is_accepted(
    typed: str, answer: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "may_ask", lambda: True)
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert console.confirm("Go ahead?", yes=False) is answer
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Go ahead? [y/N]" in captured.err


@pytest.mark.parametrize("key", ["Ctrl-C", "Ctrl-D"])
def test_an_unanswered_question_counts_as_no_with_a_note_on_a_new_line(
    key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class NoAnswer(io.StringIO):
        def readline(self, size: int | None = -1, /) -> str:
            if key == "Ctrl-C":
                raise KeyboardInterrupt
            return ""

    monkeypatch.setattr(console, "may_ask", lambda: True)
    monkeypatch.setattr(sys, "stdin", NoAnswer())
    with suppress(KeyboardInterrupt):
        assert not console.confirm("Go ahead?", yes=False, otherwise="nothing was done")
    assert capsys.readouterr().err == "Go ahead? [y/N] \nnote: nothing was done\n"


def test_a_message_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("error", "a \x1b[2J [bold]b[/bold]\nc")
    assert capsys.readouterr().err == "error: a \\x1b[2J [bold]b[/bold]\nc\n"


@pytest.mark.parametrize("line", [
    "::error::pwn", "  ::add-mask::x", "\u2003::error::x", "##[error]p", "said ##[error]p", "##vso[task.setvariable]x",
    "\u0301::error::x", "#\u034f#[error]p", ":\ufe0f:error::x", "a\n::error::b",
])
def test_no_output_contains_a_command_for_the_ci_runner(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    console.result_console().print(line, soft_wrap=True)
    console.message_console().print(line, soft_wrap=True)
    console.write_result(f"{line}\n")
    console.write_debug(f"{line}\n")
    captured = capsys.readouterr()
    ascii_only = re.sub(r"[^\n -~]", "", captured.out + captured.err)  # a runner may ignore all other characters
    assert "##" not in ascii_only
    assert not [text for text in ascii_only.splitlines() if text.strip().startswith("::")]


@pytest.mark.parametrize("text", ["a::b", "C:: x", "# one", "#1 and #2", "http://[::1]:8265", "a: b: c"])
def test_text_that_is_not_a_command_stays_unchanged(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    console.write_result(text)
    assert capsys.readouterr().out == text


def test_escaped_json_keeps_its_meaning_and_documents_stay_unchanged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    document = {"message": "::error::x ##[error]p \\##[x]", "##[key]": 1}
    console.write_result(json.dumps(document, indent=1))
    out = capsys.readouterr().out
    assert "##[" not in out
    assert json.loads(out) == document
    console.write_document("##[error]p\n")
    assert capsys.readouterr().out == "##[error]p\n"


def test_a_result_cannot_control_the_terminal_and_json_keeps_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"\x9b2Ja\x7f\x85.yaml": "\u2028 \u202e \u2066 \u00e9"}
    console.write_result(json.dumps(document, ensure_ascii=False) + "\n")
    out = capsys.readouterr().out
    assert out == '{"\\u009b2Ja\\u007f\\u0085.yaml": "\\u2028 \\u202e \\u2066 \u00e9"}\n'
    assert json.loads(out) == document


def test_wrapped_text_does_not_start_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("COLUMNS", "12")
    console.result_console().print("abcdefgh ijk ::error::pwn")
    assert "\n::" not in capsys.readouterr().out
