"""What `validate` found as a report: a row and a finding per problem, each at its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.documents.position import Position
from fleetctl.documents.quantity import count_of, plural
from fleetctl.render.report.model import Cell, Column, Finding, Report, Table, Total

if TYPE_CHECKING:
    from fleetctl.fleetfile.load import LoadedFleet
    from fleetctl.problem import Problem

COLUMNS = (Column("place", "place", name=True), Column("severity", "severity"), Column("code", "code", name=True),
           Column("message", "what"))


def problems_report(loaded: LoadedFleet) -> Report:
    """Return the problems of fleet files; with none of them it says what the files hold."""
    errors, warnings = len(loaded.errors), len(loaded.problems) - len(loaded.errors)
    files = [source.path for source in loaded.fleet.files] if loaded.fleet else []
    subjects = dict.fromkeys([*files, *(problem.file for problem in loaded.problems)])
    return Report(
        kind="problems",
        identity="validate",
        fleet=loaded.fleet.name if loaded.fleet else "",
        title="The fleet files are valid" if loaded.fleet else "The fleet files have errors",
        verdict=problems_verdict(loaded),
        facts=(("files", ", ".join(subjects)),),
        totals=(_total("error", errors), _total("warning", warnings)),
        tables=(Table("problem", "Problems", COLUMNS, tuple(map(_row, loaded.problems)), rank=0),)
        if loaded.problems else (),
        findings=tuple(map(_finding, loaded.problems)),
        subjects=tuple(subjects),
        exit_code=1 if errors else 0,
        file=next(iter(subjects), ""),
    )


def problems_verdict(loaded: LoadedFleet) -> str:
    """Return the last line of `validate`: what the files hold, or how many problems they have."""
    warnings = len(loaded.problems) - len(loaded.errors)
    beside = f", {count_of(warnings, 'warning')}" if warnings else ""
    if loaded.fleet is None:
        return f"{count_of(len(loaded.errors), 'error')}{beside}"
    replicas = sum(model.replicas for model in loaded.fleet.models)
    return (f"fleet {loaded.fleet.name}: {count_of(len(loaded.fleet.models), 'model')}, "
            f"{count_of(replicas, 'replica')} wanted{beside}")


def _total(noun: str, count: int) -> Total:
    return Total(f"{noun}s", plural(count, noun), count)


def _row(problem: Problem) -> tuple[Cell, ...]:
    place = f"{problem.file}:{problem.line}:{problem.column}"
    return place, problem.severity, problem.code, (problem.message, *_notes(problem))


def _finding(problem: Problem) -> Finding:
    place = Position(file=problem.file, line=problem.line, column=problem.column)
    return Finding(problem.severity, problem.code, problem.file, problem.message, place, _notes(problem))


def _notes(problem: Problem) -> tuple[str, ...]:
    notes = (f"allowed: {problem.allowed}" if problem.allowed else "",
             f"did you mean {problem.suggestion}?" if problem.suggestion else "")
    return tuple(note for note in notes if note)
