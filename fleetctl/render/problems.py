"""Problems of fleet files as text: a line editors can jump to, the allowed values, the nearest spelling. And what an
import lost, changed or left to do: one line each that editors can jump to, or one JSON document.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fleetctl.problem import Problem
from fleetctl.render.visible import print_trimmed, visible

if TYPE_CHECKING:
    from fleetctl.importers.draft import Draft, Loss

INDENT = 4
LOSS_STYLES = {"lost": "bold red", "todo": "bold yellow", "changed": "cyan"}


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


def render_losses(losses: Sequence[Loss], console: Console) -> None:
    """Print each loss as `file:line:column: kind: field: message`, or `kind: path: message` if it has no place."""
    for loss in losses:
        place = f"{visible(str(loss.place))}: " if loss.place else ""
        subject = loss.field if loss.place else loss.path
        about = f"{visible(subject)}: " if subject else ""
        console.print(Text.assemble((place, "bold"), (loss.kind, LOSS_STYLES[loss.kind]), ": ", (about, "dim"),
                                    visible(loss.message)), soft_wrap=True)


def render_import_json(draft: Draft, file: str | None, problems: Sequence[Problem]) -> str:
    """Return models, losses and problems of an import as JSON; `file` is the fleet file that was written."""
    document = {
        "fleet": draft.name, "file": file, "partial": draft.partial or bool(problems),
        "models": [{"key": model.key, "replicas": model.value.get("replicas"), **_place(model.place)}
                   for model in draft.models],
        "losses": [{"kind": loss.kind, "model": loss.model, **_place(loss.place), "path": loss.path,
                    "message": loss.message} for loss in draft.losses],
        "problems": [problem.as_json() for problem in problems],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _place(place: Any) -> dict[str, Any]:  # noqa: ANN401 (a Position or None)
    return {"source": place.model_dump() if place else None}
