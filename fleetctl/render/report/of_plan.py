"""A plan as a report: what it refuses, what the change causes alone, a row per model, what is blocked and why."""

from __future__ import annotations

from fleetctl.documents.plan import Plan
from fleetctl.render.plan_table import certificate_sentence, totals_line
from fleetctl.render.report.model import Report, Total
from fleetctl.render.report.plan_facts import plan_facts
from fleetctl.render.report.plan_findings import plan_findings
from fleetctl.render.report.plan_tables import plan_tables

LABELS = (
    ("wanted", "wanted"), ("live", "live"), ("create", "to create"), ("blocked", "blocked"), ("hold", "held"),
    ("starting", "starting"), ("restarting", "restarting"), ("outdated", "outdated"), ("drift", "drifting"),
    ("lost", "lost"), ("unmanaged", "unmanaged"),
)
"""The counts of `Plan.summary`, as they read after the number."""


def plan_report(plan: Plan) -> Report:
    """Return the plan as every generic format shows it."""
    totals = [Total(key, label, getattr(plan.summary, key)) for key, label in LABELS]
    return Report(
        kind="plan",
        identity=f"plan:{plan.fleet.name}",
        fleet=plan.fleet.name,
        title=f"Plan for fleet {plan.fleet.name}",
        verdict=totals_line(plan),
        facts=plan_facts(plan, certificate_sentence(plan.certificate) if plan.certificate.wanted else ""),
        totals=(*totals, Total("policy", "against policy", len(plan.policy))),
        tables=plan_tables(plan),
        findings=plan_findings(plan),
        subjects=tuple(row.key for row in plan.models),
        exit_code=plan.exit_code,
        file=plan.fleet.files[0].path if plan.fleet.files else "",
    )
