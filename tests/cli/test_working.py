"""The progress line of a slow step: shown on a capable terminal only."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from cli_result import Cli

from fleetctl.cli import console
from fleetctl.cli.console import working


class Screen(io.StringIO):
    """A standard error stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


class Streams:
    """The module `sys` with another standard error; pytest replaces that of the real one between setup and test."""

    def __init__(self, stderr: Screen) -> None:
        self.stderr = stderr

    def __getattr__(self, name: str) -> object:
        return getattr(sys, name)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A terminal on standard error that shows the progress line at once."""
    monkeypatch.setattr(console, "WORKING_AFTER_S", 0.0)
    for name in ("CI", "NO_COLOR", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Screen()
    monkeypatch.setattr(console, "sys", Streams(terminal))
    return terminal


def test_the_progress_line_is_shown_and_then_erased(screen: Screen) -> None:
    with working("planning \x1b[2J models"):
        pass
    text = screen.getvalue()
    assert "planning \\x1b[2J models 0s" in text
    assert text.endswith("\x1b[2K")  # the line is erased


@pytest.mark.parametrize(("name", "value"), [("CI", "1"), ("NO_COLOR", "1"), ("TERM", "dumb")])
def test_there_is_no_progress_line_without_a_capable_terminal(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with working("planning"):
        pass
    assert screen.getvalue() == ""


def test_quick_work_shows_no_progress_line(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "WORKING_AFTER_S", 1000.0)
    with working("planning"):
        pass
    assert "planning" not in screen.getvalue()


def test_an_interrupt_leaves_no_progress_line(screen: Screen) -> None:
    with pytest.raises(KeyboardInterrupt), working("reading"):
        raise KeyboardInterrupt
    assert screen.getvalue().endswith("\x1b[2K")


@pytest.mark.parametrize(("command", "steps"), [
    ("plan -f FLEET", ["reading the cluster", "planning 2 models"]),
    ("apply -f FLEET --yes", ["reading the cluster", "planning 2 models", "submitting the apply"]),
    ("what-if -f FLEET --each-node", ["reading the cluster", "planning"]),
    ("capacity -f FLEET", ["reading the cluster", "counting"]),
    ("map -f FLEET", ["reading the cluster", "planning"]),
    ("status", ["reading the cluster"]), ("history", ["reading the runs"]),
])
def test_every_step_that_may_take_long_is_shown(
    cli: Cli, fits: Path, screen: Screen, command: str, steps: list[str]
) -> None:
    assert cli(*command.replace("FLEET", str(fits)).split()).code == 0
    seen = screen.getvalue()
    assert [step for step in steps if step not in seen] == []
    assert [seen.index(step) for step in steps] == sorted(seen.index(step) for step in steps)
