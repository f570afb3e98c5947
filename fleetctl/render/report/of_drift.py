"""Drift as a report: the plan and the latest failures, with a conclusion that says whether action is needed."""

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
from fleetctl.render.report.of_plan import plan_report
from fleetctl.render.report.of_runs import replica_text

FAILURE_ROW = (Column("replica", "replica", name=True), Column("code", "code"), Column("message", "why"))


def drift_report(plan: Plan, failures: Sequence[ReplicaOutcome], beside: Sequence[Diagnosed] = ()) -> Report:
    """Return the plan's report with failures, and with the doctor's findings in `beside`.

    Exit codes: 4 = a policy refuses the missing replicas; 3 = a replica is blocked, restarting or has failed; 2 = a
    replica is missing or does not match the files; 0 = no drift.
    """
    report, name = plan_report(plan), plan.fleet.name
    rows = tuple((replica_text(one), one.code or "", tuple(one.message.split("\n"))) for one in failures)
    table = Table("failure", "Failed in the latest apply, and still missing", FAILURE_ROW, rows, rank=0)
    findings = (Finding("error", one.code or "FAILED", one.model, f"{replica_text(one)} failed: {one.message}")
                for one in failures)
    warnings = Table("diagnosed", "Other warnings", ROW, tuple(map(row, beside)), rank=0)
    code = plan.exit_code
    if code in (NOTHING_TO_DO, CHANGES) and (failures or plan.summary.restarting):
        code = PARTIAL
    elif code == NOTHING_TO_DO and plan.drift:
        code = CHANGES
    warned = count_of(len(beside), "warning")
    title = f"Drift of fleet {name}"
    if code == NOTHING_TO_DO:
        title = f"No drift of fleet {name}{f', but {warned}' if beside else ''}"
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
        return "No drift: no replica is missing, and all match the files"
    parts = {"can be created": counts.create, "blocked": counts.blocked, "restarting": counts.restarting,
             "outdated": counts.outdated, "placed where the files no longer allow it": counts.drift - counts.outdated,
             "failed in the latest apply": failed}
    refused = "; refused by policy" if code == REFUSED else ""
    return f"Drift: {', '.join(f'{count} {word}' for word, count in parts.items() if count)}{refused}"
