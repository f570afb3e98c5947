"""What runs leave in Ray's table once all have ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic, sleep

from fleetctl.apply import jobs
from fleetctl.apply.prepare import Starter
from fleetctl.apply.standby import StandbyKeeper, find_standby
from fleetctl.cli.verb import new_job_id
from fleetctl.documents.plan import PlanFleet
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import list_jobs
from tests.e2e.cluster import RayCluster, eventually

FLEET = PlanFleet(name="last", namespace="last")
ENDS_S = 30.0


def left_in_table(cluster: RayCluster, log: Callable[[str], None]) -> list[str]:
    """Return what Ray's table still has for runs that have ended, after one more run has begun."""
    with DashboardClient(cluster.address) as client:
        for job in list_jobs(client):
            if not job.ended:
                jobs.stop(client, job.submission_id)
        until = monotonic() + ENDS_S
        while any(not job.ended for job in list_jobs(client)) and monotonic() < until:
            sleep(0.5)
        keeper = StandbyKeeper(Starter("the last run"), partial(new_job_id, "apply"), monotonic)
        keeper.keep(client, FLEET)
        eventually(lambda: find_standby(client, FLEET), "the last run has begun")
        left = cluster.keys()
        ended = {job.submission_id for job in list_jobs(client) if job.ended}
        jobs.stop(client, str(keeper.job))
    log(f"left in Ray's table: {left}")
    return [f"leaked: {key} in Ray's table" for key in left["sent"]
            if key.removeprefix("gcs://").rpartition("-")[0] in ended or "-replan-" in key]
