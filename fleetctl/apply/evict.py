"""Evict from the client's side: one job of the agent that ends the one replica it names."""

from __future__ import annotations

from fleetctl.apply import jobs
from fleetctl.apply.follow import Follower
from fleetctl.apply.package import job_package
from fleetctl.apply.request import evict_request
from fleetctl.documents.events import RunSummary
from fleetctl.errors import ApplyError, LockHeld
from fleetctl.inventory.client import DashboardClient

PATIENCE_S = 120.0


def run_evict(
    client: DashboardClient, fleet: str, namespace: str, replica: tuple[str, int], submission_id: str, who: str,
    lock_timeout_s: float,
) -> str:
    """End the replica (model, id) and return what the agent said of it; raises LockHeld, ApplyError and WaitTimeout."""
    request = evict_request(fleet, namespace, *replica, submission_id, who, lock_timeout_s)
    metadata = {"fleet": fleet, "who": who, "replica": f"{replica[0]}/{replica[1]}"}
    jobs.submit(client, submission_id, "evict", job_package(request), metadata)
    for event in Follower(client, submission_id, wait_timeout_s=PATIENCE_S + lock_timeout_s).events():
        if isinstance(event, RunSummary):
            if event.exit_code == 5:
                raise LockHeld(event.message, hint="wait for it with --lock-timeout 10m")
            if event.exit_code != 0:
                raise ApplyError(event.message)
            return event.message
    raise ApplyError("the agent's events ended without a summary")
