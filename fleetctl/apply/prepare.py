"""What must hold before a plan is applied, and what there is to do then. Reads the cluster; changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.apply.used import AGAIN, refuse_used
from fleetctl.documents.base import as_datetime
from fleetctl.documents.plan import ModelRow, Plan
from fleetctl.errors import PlanStale
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.read import Live, read_inventory
from fleetctl.planner.complete import require_complete
from fleetctl.planner.options import PlanOptions
from fleetctl.planner.stale import moved_since


@dataclass(frozen=True, slots=True)
class ApplyTask:
    """A plan and where to apply it."""

    client: DashboardClient
    plan: Plan

    @property
    def has_work(self) -> bool:
        """Whether there is anything to create or to wait for."""
        return bool(self.plan.actions or awaited(self.plan))


def awaited(plan: Plan) -> Sequence[ModelRow]:
    """Return the models whose replicas were starting already and are waited for: wanted, and not left out by flags."""
    options = PlanOptions(tuple(plan.options.get("targets") or ()), tuple(plan.options.get("excludes") or ()))
    return [row for row in plan.models if row.wanted and row.starting and options.left_out(row.key) is None]


def prepare_saved(client: DashboardClient, plan: Plan, now: str) -> ApplyTask:
    """Check that a saved plan can still be applied. `now` is RFC 3339.

    Raises PlanUsed, PlanStale (it expired, or what it relies on has moved), and InventoryError when the cluster could
    not be read whole.
    """
    refuse_used(client, plan)
    if has_expired(plan, now):
        raise PlanStale(f"this plan expired at {plan.expires_at}", hint=AGAIN)
    seen = read_inventory(Live(client, now, plan.fleet.namespace))
    require_complete(seen)
    moved = moved_since(plan, seen)
    if moved:
        raise PlanStale("this plan is stale: what it relies on has changed", moved=moved, hint=AGAIN)
    return ApplyTask(client, plan)


def has_expired(plan: Plan, now: str) -> bool:
    """Tell whether the plan's time is over at `now` (RFC 3339 with a zone)."""
    return plan.expires_at is not None and as_datetime(now) > as_datetime(plan.expires_at)
