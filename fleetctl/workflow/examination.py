"""The evidence for the doctor: read from the cluster, and asked of its nodes. What fails is evidence, too."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import TracebackType

from fleetctl.apply.node_jobs import Asker, examine
from fleetctl.apply.record import Starter
from fleetctl.doctor.evidence import Evidence
from fleetctl.doctor.needs import needs_by_node
from fleetctl.documents.quantity import count_of
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.inventory.live import Live
from fleetctl.inventory.vitals import read_vitals
from fleetctl.workflow.cluster import cluster_of, read
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.invocation import Invocation, Where


@dataclass(slots=True)
class Examination:
    """One run of the doctor: which cluster, which fleet, and in whose name its jobs are submitted."""

    invocation: Invocation
    where: Where
    loaded: LoadedFleet | None
    starter: Starter
    _source: Live | None = field(default=None, init=False)

    def __enter__(self) -> Examination:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._source is not None:
            self._source.close()

    def asker(self) -> Asker:
        """Return what submits jobs to the cluster; raises InventoryError for a cluster that is not known."""
        self._source = self._opened()
        return Asker(self._source.client, self._source.namespace, self.starter)

    def evidence(self, job: str | None) -> Evidence:
        """Read the cluster; `job` = the id of the job that asks the nodes, None = they are not asked."""
        found = Evidence(self.invocation.now(), self.loaded)
        try:
            self._source = self._opened()
            with self.invocation.working("reading the cluster"):
                vitals = read_vitals(self._source.client)
            found = replace(found, vitals=vitals, seen=read(self.invocation, replace(
                self._source, observed_at=self.invocation.now())))
        except FleetctlError as error:
            return replace(found, refusal=error)
        return self._asked(found, job) if job else found

    def _opened(self) -> Live:
        fleet = self.loaded.fleet if self.loaded else None
        return self._source or live_source(self.invocation, self.where, cluster_of(fleet))

    def _asked(self, found: Evidence, job: str) -> Evidence:
        """Add what the nodes answer."""
        needs = needs_by_node(found.fleet, found.inventory.nodes)
        if not needs:
            return found
        self.invocation.say("note", f"asking {count_of(len(needs), 'node')}; this takes some seconds")
        try:
            with self.invocation.working("asking the nodes"):
                nodes, locks = examine(self.asker(), job, needs)
        except FleetctlError as error:
            return replace(found, unasked=error)
        return replace(found, nodes=nodes, locks=locks)
