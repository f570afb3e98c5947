"""Evict from the client's side: one job of the agent that ends the one replica it names."""

from __future__ import annotations

from fleetctl.apply import jobs
from fleetctl.apply.follow import EVICTION, Follower
from fleetctl.apply.outcome import raise_if_refused
from fleetctl.apply.record import Starter, evict_metadata
from fleetctl.apply.request import evict_request
from fleetctl.documents.events import RunSummary
from fleetctl.errors import ApplyError
from fleetctl.inventory.client import DashboardClient

PATIENCE_S = 120.0


def run_evict(
    client: DashboardClient, fleet: str, namespace: str, replica: tuple[str, int], submission_id: str,
    starter: Starter, lock_timeout_s: float, patience: jobs.Patience | None = None,
) -> str:
    """End the replica (model, id) and return the agent's message; raises LockHeld, ApplyError and WaitTimeout."""
    request = evict_request(fleet, namespace, *replica, submission_id, starter.name, lock_timeout_s)
    metadata = evict_metadata(fleet, namespace, f"{replica[0]}/{replica[1]}", starter)
    jobs.submit(client, jobs.Submission(submission_id, "evict", namespace, metadata,
                                        "`fleetctl status` shows whether the replica is still there"),
                request, patience)
    follower = Follower(client, submission_id, EVICTION, wait_timeout_s=PATIENCE_S + lock_timeout_s)
    for event in follower.events():
        if isinstance(event, RunSummary):
            raise_if_refused(event)
            return event.message
    raise ApplyError("the agent's events ended without a summary")
