"""Drift as a report: the plan, and what failed, in one sentence that says whether anybody has to look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import count_of
from fleetctl.planner.outcome import CHANGES, NOTHING_TO_DO, PARTIAL, REFUSED
from fleetctl.render.report.model import Column, Finding, Report, Table, Total
from fleetctl.render.report.of_diagnosis import ROW, finding, row
from fleetctl.render.report.of_outcomes import replica_text
from fleetctl.render.report.of_plan import plan_report

FAILURE_ROW = (Column("replica", "replica", name=True), Column("code", "code"), Column("message", "why"))


def drift_report(plan: Plan, failures: Sequence[ReplicaOutcome], beside: Sequence[Diagnosed] = ()) -> Report:
    """Return the plan's report with the failures, and what the doctor found beside; its exit code is that of the drift.

    4 = a policy refuses what is missing; 3 = something is blocked, restarting or failed; 2 = something is missing, or
    runs otherwise than the files say; 0 = neither.
    """
    report, name = plan_report(plan), plan.fleet.name
    rows = tuple((replica_text(one), one.code or "", tuple(one.message.split("\n"))) for one in failures)
    table = Table("failure", "Failed in the latest apply, and still missing", FAILURE_ROW, rows, rank=0)
    findings = (Finding("error", one.code or "FAILED", one.model, f"{replica_text(one)} failed: {one.message}")
                for one in failures)
    warnings = Table("diagnosed", "Beside the plan", ROW, tuple(map(row, beside)), rank=0)
    code = plan.exit_code
    if code in (NOTHING_TO_DO, CHANGES) and (failures or plan.summary.restarting):
        code = PARTIAL
    elif code == NOTHING_TO_DO and plan.drift:
        code = CHANGES
    warned = count_of(len(beside), "warning")
    title = f"No drift of fleet {name}{f', but {warned}' if beside else ''}" if code == NOTHING_TO_DO else (
        f"Drift of fleet {name}")
    return replace(
        report, identity=f"drift:{name}", title=title,
        totals=(*report.totals, Total("failed", "failed", len(failures))),
        findings=(*report.findings, *findings, *map(finding, beside)),
        tables=(*((table,) if rows else ()), *((warnings,) if beside else ()), *report.tables),
        conclusion=_sentence(plan, len(failures), code) + (f"; {warned}" if beside else ""),
        exit_code=code)


def _sentence(plan: Plan, failed: int, code: int) -> str:
    counts = plan.summary
    if code == NOTHING_TO_DO:
        return "No drift: no replica is missing, and all run as the files say"
    parts = {"can be created": counts.create, "blocked": counts.blocked, "restarting": counts.restarting,
             "outdated": counts.outdated, "placed otherwise than the files allow": counts.drift - counts.outdated,
             "failed in the latest apply": failed}
    refused = "; refused by policy" if code == REFUSED else ""
    return f"Drift: {', '.join(f'{count} {word}' for word, count in parts.items() if count)}{refused}"
