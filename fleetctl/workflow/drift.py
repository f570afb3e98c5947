"""Which replicas failed in the latest apply of a fleet and are still missing."""

from __future__ import annotations

from fleetctl.apply.history import read_run, runs_of
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.plan import Plan
from fleetctl.inventory.client import DashboardClient


def failures_of(client: DashboardClient, plan: Plan) -> list[ReplicaOutcome]:
    """Return the failed replicas of the latest apply whose models the plan still finds short of their target.

    Raises InventoryError when the history cannot be read.
    """
    name = plan.fleet.name
    latest = next((job for job in runs_of(client, name) if job.ended and job.metadata.get("verb") == "apply"), None)
    if latest is None:
        return []
    short = {row.key for row in plan.models if row.create or row.blocked}
    outcomes = read_run(client, latest.submission_id, name).outcomes
    return [row for row in outcomes if row.outcome == "failed" and row.model in short]
