"""Evidence beyond a plan: for the doctor, from the cluster and its nodes; for CI, recent failures."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property

from fleetctl.apply.history import read_run, recent_runs
from fleetctl.apply.node_jobs import JobRunner, examine
from fleetctl.apply.prepare import Starter
from fleetctl.doctor import nodes, replicas
from fleetctl.doctor.evidence import Evidence
from fleetctl.doctor.fleet import needs_by_node
from fleetctl.documents.base import as_datetime
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import count_of
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.cold import with_wrong
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.records import read_records
from fleetctl.inventory.vitals import Vitals, read_vitals
from fleetctl.workflow.cluster import cluster_of, read
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.invocation import Invocation, Where


@dataclass
class Examination:
    """One run of the doctor: the cluster, the fleet, and the user who submits its jobs.

    `opened` closes the connections to the cluster.
    """

    invocation: Invocation
    where: Where
    loaded: LoadedFleet | None
    starter: Starter
    opened: ExitStack

    def asker(self) -> JobRunner:
        """Return the submitter of jobs to the cluster; raises InventoryError for an unknown cluster."""
        return JobRunner(self._source.client, self._source.namespace, self.starter)

    def evidence(self, job: str | None) -> Evidence:
        """Read the cluster, and its nodes by the job with this id; None = do not examine the nodes."""
        found = Evidence(self.invocation.now(), self.loaded)
        try:
            source = self._source
            with self.invocation.working("reading the cluster"):
                vitals = read_vitals(source.client)
            seen = read(self.invocation, source)
            told, here_s = source.client.cluster_time(), as_datetime(self.invocation.now()).timestamp()
            found = replace(found, vitals=vitals, seen=with_wrong(source.client, seen), now=source.now(),
                            ahead_s=None if told is None else here_s - told)
        except FleetctlError as error:
            return replace(found, refusal=error)
        return self._with_nodes(found, job) if job else found

    @cached_property
    def _source(self) -> Live:
        fleet = self.loaded.fleet if self.loaded else None
        return self.opened.enter_context(live_source(self.invocation, self.where, cluster_of(fleet)))

    def _with_nodes(self, found: Evidence, job: str) -> Evidence:
        needs = needs_by_node(found.fleet, found.inventory.nodes)
        if not needs:
            return found
        self.invocation.say("note", f"examining {count_of(len(needs), 'node')}; this takes some seconds")
        try:
            with self.invocation.working("examining the nodes"):
                nodes, locks, silent = examine(self.asker(), job, needs)
        except FleetctlError as error:
            return replace(found, unasked=error)
        return replace(found, nodes=nodes, locks=locks, autoscaler=silent)


def failures_of(client: DashboardClient, plan: Plan) -> list[ReplicaOutcome]:
    """Return the failed replicas of the latest apply whose models are still short of their target in the plan.

    Raises InventoryError when neither records nor list can be read.
    """
    name = plan.fleet.name
    latest = next((job for job in recent_runs(client, name) if job.ended and job.metadata.get("verb") == "apply"), None)
    if latest is None:
        return []
    short = {row.key for row in plan.models if row.create or row.blocked}
    outcomes = read_run(client, latest.submission_id, name).outcomes
    return [row for row in outcomes if row.outcome == "failed" and row.model in short]


def capacity_findings(client: DashboardClient, loaded: LoadedFleet, seen: Inventory) -> list[Diagnosed]:
    """Return findings that change capacity silently: foreign memory, expired cordons, pauses, cooling, recent failures.

    Raises InventoryError when the records, which have the cordons, cannot be read.
    """
    evidence = Evidence(seen.observed_at, loaded, seen=seen, vitals=Vitals(records=read_records(client)))
    return [*nodes.check_foreign_memory(evidence), *nodes.check_cordons(evidence),
            *replicas.check_pauses(evidence), *replicas.check_failures(evidence)]
