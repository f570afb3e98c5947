"""The result of a run: a row per replica, and the one exit code that text, JSON and the process share.

The agent reports facts. Only this module decides the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.apply.prepare import used_by
from fleetctl.documents.events import ReplicaOutcome, RunSummary
from fleetctl.documents.plan import Plan
from fleetctl.errors import ApplyError, LockHeld, PlanUsed

FINE, PARTIAL, INTERRUPTED = 0, 3, 130


def final_exit_code(outcomes: Sequence[ReplicaOutcome], *, interrupted: bool, waited: bool = True) -> int:
    """Return 130 when the run was interrupted, else 0 if nothing that is wanted is missing, else 3.

    Whether anything was started does not matter. A run that did not wait wants replicas created, not ready.
    """
    if interrupted:
        return INTERRUPTED
    return FINE if all(_is_fine(row, waited=waited) for row in outcomes) else PARTIAL


def _is_fine(row: ReplicaOutcome, *, waited: bool) -> bool:
    """Return whether the replica is as wanted, or no longer needed because others reached the target.

    Without waiting, one that reloads after others is as wanted, too.
    """
    if row.outcome == "starting":
        return not waited and row.code is None
    return row.outcome in ("ready", "gone") or (
        row.outcome == "skipped" and (row.code == "TARGET_REACHED" or (row.code == "WAITS_TURN" and not waited)))


def blocked_outcomes(plan: Plan) -> list[ReplicaOutcome]:
    """Return the plan's blocked replicas as outcomes: they were never started."""
    return [
        ReplicaOutcome(model=blocked.model, outcome="blocked", code=blocked.code, message=blocked.message,
                       replicas=blocked.replicas)
        for blocked in plan.blocked]


def all_outcomes(plan: Plan | None, summary: RunSummary | None) -> list[ReplicaOutcome]:
    """Return every replica's outcome, blocked ones included; without a summary nothing was submitted."""
    if summary is not None:
        return list(summary.outcomes)
    return blocked_outcomes(plan) if plan else []


def raise_if_refused(summary: RunSummary) -> None:
    """Raise LockHeld or PlanUsed when the agent ended before any action, ApplyError when it could not even begin."""
    extra = summary.model_extra or {}
    if summary.exit_code == LockHeld.exit_code:
        holder: Mapping[str, str] = extra.get("holder") or {}
        who = f", started by {holder['who']}" if holder.get("who") else ""
        ways = "or follow it with `fleetctl apply --attach`"
        if job := holder.get("job"):
            ways = f"follow it with `fleetctl apply --attach {job}`, or stop it with `fleetctl stop {job}`"
        raise LockHeld(f"{summary.message}{who}", hint=f"wait for it with --lock-timeout 10m, {ways}")
    if summary.exit_code == PlanUsed.exit_code:
        raise used_by(str(extra.get("usedBy", "unknown")))
    if summary.exit_code == ApplyError.exit_code:
        raise ApplyError(summary.message)
