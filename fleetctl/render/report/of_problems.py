"""Problems of fleet files, and errors that prevented a plan or an apply, as a report."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.documents.position import Position
from fleetctl.documents.quantity import count_of, plural
from fleetctl.errors import FleetctlError, FleetFileError
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.render.report.model import Column, Finding, Report, Table, Total

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
    replicas = sum(model.replicas for model in loaded.fleet.models)
    return (f"fleet {loaded.fleet.name}: {count_of(len(loaded.fleet.models), 'model')}, "
            f"{count_of(replicas, 'replica')} wanted{beside}")
