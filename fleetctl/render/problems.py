"""Problems of fleet files as text: a line editors can jump to, the allowed values, the nearest spelling."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fleetctl.problem import Problem
from fleetctl.render.trim import print_trimmed
from fleetctl.render.visible import visible

INDENT = 4


def render_problems(problems: Sequence[Problem], console: Console) -> None:
    """Print every problem as `file:line:column: error FL012: message`, with its source line on a terminal."""
    for problem in problems:
        style = "bold yellow" if problem.severity == "warning" else "bold red"
        console.print(
            Text.assemble(
                (f"{visible(problem.file)}:{problem.line}:{problem.column}", "bold"), ": ",
                (f"{problem.severity} {problem.code}", style), ": ", visible(problem.message)),
            soft_wrap=True)
        if problem.source_line and console.is_terminal:
            _print_source(problem.source_line, problem.column, console)
        if problem.allowed:
            _print_note("allowed: ", visible(problem.allowed), console)
        if problem.suggestion:
            _print_note("did you mean ", f"{visible(problem.suggestion)}?", console)


def _print_note(label: str, note: str, console: Console) -> None:
    text = Text.assemble((label, "cyan"), note)
    if console.is_terminal:
        print_trimmed(Padding(text, (0, 0, 0, INDENT)), console)
    else:
        console.print(Text(" " * INDENT) + text, soft_wrap=True)


def _print_source(line: str, column: int, console: Console) -> None:
    width = max(console.width - 2 * INDENT, 2)
    start = max(0, column - width * 3 // 4)  # in a long line the column is at three quarters of the width
    shown = visible(line.replace("\t", " ")[start:start + width])
    if start:
        shown = f"…{shown[1:]}"
    if len(line) > start + width:
        shown = f"{shown[:-1]}…"
    console.print(Text.assemble(" " * INDENT, (shown, "dim")), soft_wrap=True)
    console.print(Text.assemble(" " * (INDENT + column - 1 - start), ("^", "bold red")), soft_wrap=True)
