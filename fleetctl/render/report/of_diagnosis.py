"""A diagnosis as a report: the findings by area, each with what to do, and the number of checks. And drift: the plan
and the latest failures, with a conclusion that says whether action is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fleetctl.documents.diagnosis import AREAS, Diagnosed, Diagnosis
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import count_of
from fleetctl.planner.policy import CHANGES, NOTHING_TO_DO, PARTIAL, REFUSED
from fleetctl.render.report.model import CODE, REPLICA, WHY, Cell, Column, Finding, Report, Table, Total
from fleetctl.render.report.of_runs import replica_text

TITLES = {"client": "This client", "cluster": "Cluster", "node": "Nodes", "replica": "Replicas", "fleet": "Fleet"}
ROW = (Column("severity", "severity"), CODE, Column("subject", "about", name=True),
       Column("message", "what"))
SIGNS = {"error": "!", "warning": "~"}
FAILURE_ROW = (REPLICA, Column("code", "code"), WHY)


def diagnosis_report(diagnosis: Diagnosis) -> Report:
    """Return the report of `doctor`, with the findings in the order of the areas."""
    counts = Counter[str](one.severity for one in diagnosis.findings)
    tables = []
    for area in AREAS:
        if found := [one for one in diagnosis.findings if one.area == area]:
            tables.append(Table(area, TITLES[area], ROW, tuple(map(_row, found)), rank=0,
                                line="{code} {subject}: {message}", signs=tuple(SIGNS[one.severity] for one in found)))
    skipped = Counter(check.skipped for check in diagnosis.checks if check.skipped)
    made = count_of(sum(check.skipped is None for check in diagnosis.checks), "check")
    on_nodes = f" on {count_of(diagnosis.nodes_examined, 'node')}" if diagnosis.nodes_examined else ""
    shown = [count_of(counts[severity], severity) for severity in ("error", "warning") if counts[severity]]
    return Report(
        kind="answer", identity="doctor", fleet=diagnosis.fleet or "", title="Doctor",
        tables=tuple(tables),
        notes=tuple(f"{count_of(number, 'check')} not made: {reason}" for reason, number in skipped.items()),
        conclusion=f"{', '.join(shown) or 'no problems found'}: {made}{on_nodes}",
        totals=(Total("errors", "errors", counts["error"]), Total("warnings", "warnings", counts["warning"])),
        findings=tuple(map(_finding, diagnosis.findings)), exit_code=diagnosis.exit_code)


def _finding(fact: Diagnosed) -> Finding:
    return Finding(fact.severity, fact.code, fact.subject, f"{fact.subject}: {fact.message}", details=_below(fact))


def _row(fact: Diagnosed) -> tuple[Cell, ...]:
    return fact.severity, fact.code, fact.subject, (fact.message, *_below(fact))


def _below(fact: Diagnosed) -> tuple[str, ...]:
    lines = (f"to do: {fact.advice}" if fact.advice else "", f"$ {fact.command}" if fact.command else "")
    return tuple(line for line in lines if line)


def drift_report(plan: Plan, failures: Sequence[ReplicaOutcome], beside: Sequence[Diagnosed] = ()) -> Report:
    """Return the plan's report with failures, and with the doctor's findings in `beside`.

    Exit codes: 4 = a policy refuses the missing replicas; 3 = a replica is blocked, restarting, no longer ready or has
    failed; 2 = a replica is missing or does not match the files; 0 = no drift.
    """
    from fleetctl.render.report.of_plan import plan_report  # the doctor shows no plan

    report, name = plan_report(plan), plan.fleet.name
    rows = tuple((replica_text(one), one.code or "", tuple(one.message.split("\n"))) for one in failures)
    table = Table("failure", "Failed in the latest apply, and still missing", FAILURE_ROW, rows, rank=0)
    findings = (Finding("error", one.code or "FAILED", one.model, f"{replica_text(one)} failed: {one.message}")
                for one in failures)
    warnings = Table("diagnosed", "Other warnings", ROW, tuple(map(_row, beside)), rank=0)
    code = plan.exit_code
    if code in (NOTHING_TO_DO, CHANGES) and (failures or plan.summary.restarting or plan.summary.not_ready):
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
        findings=(*report.findings, *findings, *map(_finding, beside)),
        tables=(*((table,) if rows else ()), *((warnings,) if beside else ()), *report.tables),
        conclusion=_sentence(plan, len(failures), code) + (f"; {warned}" if beside else ""),
        exit_code=code)


def _sentence(plan: Plan, failed: int, code: int) -> str:
    counts = plan.summary
    if code == NOTHING_TO_DO:
        return "No drift: no replica is missing, and all match the files"
    parts = {"can be created": counts.create, "blocked": counts.blocked, "restarting": counts.restarting,
             "no longer ready": counts.not_ready,
             "outdated": counts.outdated, "placed where the files no longer allow it": counts.drift - counts.outdated,
             "failed in the latest apply": failed}
    refused = "; refused by policy" if code == REFUSED else ""
    return f"Drift: {', '.join(f'{count} {word}' for word, count in parts.items() if count)}{refused}"
