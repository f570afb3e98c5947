"""What one apply works with: the cluster, the plan, and how long starting replicas of its models may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.documents.plan import Plan
from fleetctl.inventory.client import DashboardClient


@dataclass(frozen=True, slots=True)
class ApplyTask:
    """A plan and where to apply it. `startup_timeouts_s` by model key, for replicas that were starting before."""

    client: DashboardClient
    plan: Plan
    startup_timeouts_s: Mapping[str, float]

    @property
    def has_work(self) -> bool:
        """Whether there is anything to create or to wait for."""
        return bool(self.plan.actions) or any(row.starting and row.wanted for row in self.plan.models)
