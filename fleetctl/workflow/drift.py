"""What a check on a schedule looks at beside the plan: what failed in the latest apply, and what the doctor says."""

from __future__ import annotations

from fleetctl.apply.history import read_run, runs_of
from fleetctl.doctor import nodes, replicas
from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import ours
from fleetctl.inventory.vitals import Vitals


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


def diagnosed(client: DashboardClient, loaded: LoadedFleet, seen: Inventory) -> list[Diagnosed]:
    """Return what changes capacity without a word: foreign memory, cordons that have ended, what cools or has failed.

    Raises InventoryError when the list of jobs, which has the cordons, cannot be read.
    """
    evidence = Evidence(seen.observed_at, loaded, seen=seen, vitals=Vitals(jobs=ours(client)))
    return [*nodes.check_foreign_memory(evidence), *nodes.check_cordons(evidence),
            *replicas.check_failures(evidence)]
