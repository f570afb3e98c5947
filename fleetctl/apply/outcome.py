"""The result of a run: one row per replica, and the exit code that text, JSON and the process share.

The agent reports facts; only this module judges them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from fleetctl.apply.prepare import used_by
from fleetctl.documents.base import clock_text
from fleetctl.documents.events import ReplicaOutcome, RunSummary
from fleetctl.documents.plan import Plan
from fleetctl.errors import ApplyError, InventoryError, LockHeld, PlanUsed
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.records import NOT_READY, read_rows
from fleetctl.planner.live import sort_out
from fleetctl.planner.options import options_of, replan_command

FINE, PARTIAL, INTERRUPTED = 0, 3, 130
NO_LONGER_READY, AFTER_PILOT, TARGET_REACHED = "NO_LONGER_READY", "AFTER_PILOT", "TARGET_REACHED"
LATER = ("WAITS_TURN", AFTER_PILOT)
"""Codes of what a run that does not wait leaves to the next one."""


def final_exit_code(outcomes: Sequence[ReplicaOutcome], *, interrupted: bool, waited: bool = True) -> int:
    """Return 130 if the run was interrupted, 0 if no wanted replica is missing, otherwise 3.

    Whether the run started anything does not matter. A run that did not wait wants replicas created, not ready.
    """
    if interrupted:
        return INTERRUPTED
    return FINE if all(_is_fine(row, waited=waited) for row in outcomes) else PARTIAL


def _is_fine(row: ReplicaOutcome, *, waited: bool) -> bool:
    """Return whether the replica is as wanted, or not needed because the target was reached without it.

    If the run did not wait, a replica that waits for its turn to reload, or for a pilot, is also fine.
    """
    if row.outcome == "starting":
        return not waited and row.code is None
    return row.outcome in ("ready", "gone") or (
        row.outcome == "skipped" and (row.code == TARGET_REACHED or (row.code in LATER and not waited)))


def no_longer_ready(plan: Plan, client: DashboardClient, clock: Callable[[], str]) -> list[ReplicaOutcome]:
    """Return the replicas of planned models that were ready and no longer are, if ready ones are missing for it.

    `clock` as in `Live`. An apply leaves them as they are and does not wait for them. The cluster is read only if there
    are any.
    """
    options = options_of(plan)
    wanted = {row.key: row.wanted for row in plan.models if options.left_out(row.key, row.labels) is None}
    try:
        if not (any(row.not_ready for row in plan.models) or read_rows(client).of(NOT_READY)):
            return []
        seen = Live(client, clock, plan.fleet.namespace).read()
    except InventoryError:
        return []  # the result of the run must still be told
    models = sort_out(seen, plan.fleet.name, wanted, options.adopt_from).models
    return [ReplicaOutcome(
                model=key, replica_id=replica.replica_id, outcome="starting", code=NO_LONGER_READY, message=(
                    "it is up, but has not been ready since "
                    f"{clock_text(replica.not_ready_since, seen.observed_at)}: {replica.not_ready_reason}"))
            for key, state in models.items()
            if sum(replica.not_ready_since is None for replica in state.live) < wanted[key]
            for replica in state.live if replica.not_ready_since]


def blocked_outcomes(plan: Plan) -> list[ReplicaOutcome]:
    """Return the plan's blocked replicas as outcomes: they were never started."""
    return [
        ReplicaOutcome(model=blocked.model, outcome="blocked", code=blocked.code, message=blocked.message,
                       replicas=blocked.replicas)
        for blocked in plan.blocked]


def outcomes_after_pilot(plan: Plan) -> list[ReplicaOutcome]:
    """Return what of a plan waits for pilots as outcomes."""
    waiting = Counter(action.model for action in plan.after_pilot)
    return [ReplicaOutcome(model=model, outcome="skipped", code=AFTER_PILOT, replicas=count,
                           message="an apply creates them once their pilot is ready")
            for model, count in waiting.items()]


def all_outcomes(plan: Plan | None, summary: RunSummary | None) -> list[ReplicaOutcome]:
    """Return the outcome of every replica, those never started included; without a summary nothing was submitted."""
    if summary is not None:
        return list(summary.outcomes)
    return [*outcomes_after_pilot(plan), *blocked_outcomes(plan)] if plan else []


def raise_if_refused(summary: RunSummary, plan: Plan | None = None) -> None:
    """Raise LockHeld or PlanUsed if the agent ended before any action, ApplyError if it could not begin.

    `plan` = the plan that was applied, if it is known.
    """
    extra = summary.model_extra or {}
    if summary.exit_code == LockHeld.exit_code:
        holder: Mapping[str, str] = extra.get("holder") or {}
        starter = f", started by {holder['who']}" if holder.get("who") else ""
        alternatives = "or follow it with `fleetctl apply --attach`"
        if job := holder.get("job"):
            alternatives = f"follow it with `fleetctl apply --attach {job}`, or stop it with `fleetctl stop {job}`"
        raise LockHeld(f"{summary.message}{starter}", hint=f"wait for it with --lock-timeout 10m, {alternatives}")
    if summary.exit_code == PlanUsed.exit_code:
        job = str(extra.get("usedBy", "unknown"))
        raise used_by(job, replan_command(plan, "FILE")) if plan else used_by(job)
    if summary.exit_code == ApplyError.exit_code:
        raise ApplyError(summary.message)
