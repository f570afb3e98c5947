"""Problems of fleet files as text and as a report: a line editors can jump to, allowed values, the nearest spelling.

Also errors that prevented a plan or an apply, as a report; and what an import lost, changed or left to do: one line
each that editors can jump to, or one JSON document.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fleetctl.documents.position import Position
from fleetctl.documents.quantity import count_of, plural
from fleetctl.errors import FleetctlError, FleetFileError
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.problem import Problem
from fleetctl.render.report.model import Column, Finding, Report, Table, Total
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


COLUMNS = (Column("place", "place", name=True), Column("severity", "severity"), Column("code", "code", name=True),
           Column("message", "what"))
ERROR_COLUMNS = (Column("kind", ""), Column("text", "what"))


def problems_report(loaded: LoadedFleet) -> Report:
    """Return the report of `validate`; without errors its conclusion summarizes the fleet."""
    errors, warnings = len(loaded.errors), len(loaded.problems) - len(loaded.errors)
    files = [source.path for source in loaded.fleet.files] if loaded.fleet else []
    subjects = dict.fromkeys([*files, *(problem.file for problem in loaded.problems)])
    rows, findings = [], []
    for one in loaded.problems:
        notes = ([f"allowed: {one.allowed}"] if one.allowed else []) + (
            [f"did you mean {one.suggestion}?"] if one.suggestion else [])
        rows.append((f"{one.file}:{one.line}:{one.column}", one.severity, one.code, (one.message, *notes)))
        place = Position(file=one.file, line=one.line, column=one.column)
        findings.append(Finding(one.severity, one.code, one.file, one.message, place, tuple(notes)))
    return Report(
        kind="problems",
        identity="validate",
        fleet=loaded.fleet.name if loaded.fleet else "",
        title="The fleet files are valid" if loaded.fleet else "The fleet files have errors",
        conclusion=problems_conclusion(loaded),
        facts=(("files", ", ".join(subjects)),),
        totals=(Total("errors", plural(errors, "error"), errors),
                Total("warnings", plural(warnings, "warning"), warnings)),
        tables=(Table("problem", "Problems", COLUMNS, tuple(rows), rank=0),) if rows else (),
        findings=tuple(findings),
        subjects=tuple(subjects),
        exit_code=1 if errors else 0,
        file=next(iter(subjects), ""))


def failure_report(error: FleetctlError, *, identity: str, fleet: str, title: str) -> Report:
    """Return the report of an error; problems of fleet files are a row and a finding each, at their lines.

    `identity`, `fleet` and `title` are those of the report that could not be made.
    """
    if isinstance(error, FleetFileError):
        problems = problems_report(LoadedFleet(None, error.problems))
        return replace(problems, identity=identity, fleet=fleet, title=title)
    hint = [("hint", error.hint)] if error.hint else []
    rows = [("error", error.message), *(("", one) for one in error.listed), *hint]
    return Report(
        kind="problems", identity=identity, fleet=fleet, title=title, conclusion=error.message, facts=(),
        totals=(Total("errors", "error", 1),),
        tables=(Table("problem", "What happened", ERROR_COLUMNS, tuple(rows), rank=0),),
        findings=(Finding("error", type(error).__name__, fleet, error.message, details=error.listed),),
        subjects=(fleet,), exit_code=error.exit_code)


def problems_conclusion(loaded: LoadedFleet) -> str:
    """Return the last line of `validate`: a summary of the fleet, or the number of problems."""
    warnings = len(loaded.problems) - len(loaded.errors)
    beside = f", {count_of(warnings, 'warning')}" if warnings else ""
    if loaded.fleet is None:
        return f"{count_of(len(loaded.errors), 'error')}{beside}"
    replicas = sum(model.asked_for for model in loaded.fleet.models)
    return (f"fleet {loaded.fleet.name}: {count_of(len(loaded.fleet.models), 'model')}, "
            f"{count_of(replicas, 'replica')} wanted{beside}")
