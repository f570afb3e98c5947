"""The result of an apply: one row per replica, and the exit code that text, JSON and the process share."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.documents.events import ReplicaOutcome, RunSummary
from fleetctl.documents.plan import Plan


def blocked_outcomes(plan: Plan) -> list[ReplicaOutcome]:
    """Return the plan's blocked replicas as outcomes: they were never begun."""
    return [
        ReplicaOutcome(model=blocked.model, outcome="blocked", code=blocked.code, message=blocked.message,
                       replicas=blocked.replicas)
        for blocked in plan.blocked
    ]


def final_exit_code(outcomes: Sequence[ReplicaOutcome]) -> int:
    """Return 0 only if every wanted replica is ready, else 3, whether or not anything was started."""
    return 0 if all(row.outcome == "ready" for row in outcomes) else 3


def all_outcomes(plan: Plan | None, summary: RunSummary | None) -> list[ReplicaOutcome]:
    """Return every replica's outcome, blocked ones included; without a summary nothing was submitted."""
    if summary is not None:
        return list(summary.outcomes)
    return blocked_outcomes(plan) if plan else []
