"""What kept a plan or an apply from being made, as a report: reviewers read it where they would have read the plan."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.errors import FleetctlError, FleetFileError, PlanStale, PolicyRefused
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.render.report.model import Column, Finding, Report, Table, Total
from fleetctl.render.report.of_problems import problems_report

COLUMNS = (Column("kind", ""), Column("text", "what"))


def failure_report(error: FleetctlError, *, identity: str, fleet: str, title: str) -> Report:
    """Return the error with all it lists; problems of fleet files are a row and a finding each, at their lines.

    `identity`, `fleet` and `title` are what the report would have had that could not be made.
    """
    if isinstance(error, FleetFileError):
        problems = problems_report(LoadedFleet(None, error.problems))
        return replace(problems, identity=identity, fleet=fleet, title=title)
    listed = error.moved if isinstance(error, PlanStale) else error.findings if isinstance(error, PolicyRefused) else ()
    rows = [("error", error.message), *(("", one) for one in listed), *([("hint", error.hint)] if error.hint else [])]
    return Report(
        kind="problems", identity=identity, fleet=fleet, title=title, verdict=error.message, facts=(),
        totals=(Total("errors", "error", 1),),
        tables=(Table("problem", "What happened", COLUMNS, tuple(rows), rank=0),),
        findings=(Finding("error", type(error).__name__, fleet, error.message, details=tuple(listed)),),
        subjects=(fleet,), exit_code=error.exit_code,
    )
