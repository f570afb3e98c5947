"""The two output streams: results go to standard output, everything else to standard error. Decides color and width.

Precedence for color: `--color`, NO_COLOR, FORCE_COLOR, then whether the stream is a terminal. In CI and in pipes the
width is fixed, nothing is animated and no question is asked.

A CI runner scans both streams for commands, and obeys them whatever their source. So text for people and JSON are made
`inert` after wrapping; only documents that must stay byte for byte are not. (The runner's own `::stop-commands::` would
add lines to the result, and needs both streams in one.)
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

from fleetctl.errors import UsageError
from fleetctl.render.visible import inert, visible, visible_json, visible_lines, visible_log

if TYPE_CHECKING:
    from rich.console import Console

    from fleetctl.render.report.model import Report

PLAIN_WIDTH = 120
READER_GONE = 141  # 128 + SIGPIPE, the exit code of any program whose reader is gone
_LABEL_STYLES = {"error": "bold red", "warning": "bold yellow", "moved": "yellow", "hint": "cyan"}
NOTHING_DONE = "--dry-run: nothing was done"
WORKING_AFTER_S = 0.7
"""Work that takes less time shows no progress line."""
_CI_VARIABLES = ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI", "TRAVIS")

ColorChoice = Literal["auto", "always", "never"]

_choice: ColorChoice = "auto"


def choose_color(choice: ColorChoice) -> None:
    """Remember `--color`; it applies to both streams of this process."""
    global _choice  # noqa: PLW0603  a process has one standard output
    _choice = choice


def wants_color(choice: ColorChoice, environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Return whether to use color. Precedence: the flag, NO_COLOR, FORCE_COLOR (each if not empty), the stream."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or (is_terminal and environ.get("TERM") != "dumb")


def in_ci(environ: Mapping[str, str]) -> bool:
    """Return whether this is a CI job, where an animation or a question would be lost."""
    return any(environ.get(name, "").lower() not in {"", "0", "false"} for name in _CI_VARIABLES)


def width_for(environ: Mapping[str, str], *, is_terminal: bool, plain: int = PLAIN_WIDTH) -> int | None:
    """Return the width in columns; None = the terminal's. `plain` = the width with neither terminal nor COLUMNS."""
    columns = environ.get("COLUMNS", "")
    if is_terminal and not in_ci(environ):
        return None
    return int(columns) if columns.isdecimal() and int(columns) > 0 else plain


def result_console(plain_width: int = PLAIN_WIDTH) -> Console:
    """Return the console for results, on standard output; `plain_width` is the `plain` of `width_for`."""
    return _console(sys.stdout, plain_width)


def message_console() -> Console:
    """Return the console for progress, questions, warnings and errors, on standard error."""
    return _console(sys.stderr)


def say(label: str, *messages: str) -> None:
    """Write messages to standard error, each with its label, as `hint: ...`; control characters are escaped."""
    for message in messages:
        from rich.text import Text  # slow, and often there is nothing to say

        text = Text.assemble((f"{label}: ", _LABEL_STYLES.get(label, "bold")), visible_lines(message))
        message_console().print(text, soft_wrap=True)


def show_report(report: Report, console: Console | None = None) -> None:
    """Print a report for people, by default on standard output."""
    from fleetctl.render.report.terminal import print_report  # rich, which JSON output does not need

    print_report(report, console or result_console())


def write_result(text: str) -> None:
    """Write a finished result to standard output, unwrapped and as UTF-8 in any locale; inert in CI.

    Hidden characters are escaped as in JSON.
    """
    write_document(_inert_in_ci(visible_json(text)))


def write_file_diff(file: str, before: str, after: str, new_name: str | None = None) -> None:
    """Write the change of a file as a unified diff; `new_name` = the name of its new side."""
    from difflib import unified_diff

    lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
    write_result("".join(unified_diff(*lines, file, new_name or file)))


def write_document(text: str) -> None:
    """Write a document byte for byte, such as YAML, or commands for the CI runner."""
    _write_bytes(text.encode("utf-8", errors="backslashreplace"))


def write_output_of_others(data: bytes) -> None:
    """Write the output of another program: to a pipe byte for byte, to a person with control characters visible."""
    is_terminal = sys.stdout.isatty()
    if is_terminal or in_ci(os.environ) or wants_color(_choice, os.environ, is_terminal=is_terminal):
        write_result(visible_log(data.decode("utf-8", errors="backslashreplace")))
    else:
        _write_bytes(data)


def write_debug(text: str) -> None:
    """Write a traceback to standard error; inert in CI."""
    sys.stderr.write(_inert_in_ci(text))


def may_ask() -> bool:
    """Return whether a question can be asked: standard input and standard error are terminals, and this is not CI."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not in_ci(os.environ)


def confirm(question: str, *, yes: bool, otherwise: str = "") -> bool:
    """Ask on standard error and return the answer; only `y` and `yes` mean yes. `otherwise` = the note after a no.

    Raises UsageError if there is no terminal to ask on and `yes` is not set.
    """
    if yes:
        return True
    if not may_ask():
        raise UsageError("there is no terminal to ask on", hint="pass --yes to proceed without confirmation")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    answer = ""
    try:
        answer = sys.stdin.readline()
    finally:  # Ctrl-C leaves here
        agreed = answer.strip().lower() in {"y", "yes"}
        if not answer.endswith("\n"):
            sys.stderr.write("\n")
        if otherwise and not agreed:
            say("note", otherwise)
    return agreed


def moves(stream_is_terminal: bool) -> bool:
    """Return whether a stream may show output that is updated in place."""
    return stream_is_terminal and os.environ.get("TERM") != "dumb" and not in_ci(os.environ)


@contextmanager
def working(doing: str | Callable[[], str]) -> Iterator[None]:
    """Show `doing`, such as "planning 60 models", and the time passed while the block runs; then the line disappears.

    Shown on standard error, and only to a person: on a terminal that can move its cursor, not in CI, not with NO_COLOR.
    """
    if os.environ.get("NO_COLOR") or not moves(sys.stderr.isatty()):
        yield
        return
    from rich.console import Group, RenderableType
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    begun, spinner = time.monotonic(), Spinner("dots", style="cyan")

    def shown() -> RenderableType:
        passed = time.monotonic() - begun
        now = doing if isinstance(doing, str) else doing()
        spinner.update(text=Text(f"{visible(now)} {passed:.0f}s", overflow="ellipsis", no_wrap=True))
        return spinner if passed >= WORKING_AFTER_S else Group()

    with Live(get_renderable=shown, console=message_console(), refresh_per_second=8, transient=True,
              redirect_stdout=False):
        yield


def leave_pipe() -> None:
    """End quietly after the reader of standard output has gone; raises SystemExit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    raise SystemExit(READER_GONE)


def end_with_reader() -> None:
    """End the process as soon as the reader of standard output is gone, even if nothing is written for a long time."""
    ended = select.poll()

    def wait() -> None:
        ended.poll()
        os._exit(READER_GONE)

    with suppress(OSError, ValueError):  # standard output has no file descriptor
        ended.register(sys.stdout.fileno(), 0)  # only errors and the end of the other side
        threading.Thread(target=wait, daemon=True).start()


def _write_bytes(data: bytes) -> None:
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except BrokenPipeError:
        leave_pipe()


def _inert_in_ci(text: str) -> str:
    return inert(text) if in_ci(os.environ) else text


class _InertStream:
    """A stream whose text a CI runner does not take for commands."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(_inert_in_ci(text))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  everything else comes from the stream
        return getattr(self._stream, name)


def _console(stream: TextIO, plain_width: int = PLAIN_WIDTH) -> Console:
    from rich.console import Console

    class QuietPipeConsole(Console):
        """Ends the process quietly, without an error, if the reader of the pipe is gone."""

        def on_broken_pipe(self) -> None:
            leave_pipe()

    is_terminal = stream.isatty()
    live = is_terminal and not in_ci(os.environ)
    color = wants_color(_choice, os.environ, is_terminal=is_terminal)
    system: Literal["auto", "standard"] = "auto" if live and _choice == "auto" else "standard"
    return QuietPipeConsole(
        file=cast("TextIO", _InertStream(stream)),
        force_terminal=live,
        no_color=not color,
        color_system=system if color else None,
        width=width_for(os.environ, is_terminal=is_terminal, plain=plain_width),
        highlight=False,
        markup=False,
        emoji=False)
