"""All checks in order, and the diagnosis they produce; and those about capacity alone, for a CI job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fleetctl.doctor import cluster, fleet, nodes, replicas
from fleetctl.doctor.evidence import Basis, Evidence
from fleetctl.documents.diagnosis import Area, CheckRun, Diagnosed, Diagnosis, Repaired
from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.inventory.records import Records
from fleetctl.inventory.vitals import Vitals


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One check. `name` = the statement that holds if it finds nothing; `basis` = the evidence it needs."""

    name: str
    area: Area
    basis: Basis
    run: Callable[[Evidence], Iterable[Diagnosed]]


CHECKS = (
    DoctorCheck("the cluster answers and accepts this client", "client", "nothing", cluster.check_reach),
    DoctorCheck("the clocks agree", "client", "cluster", cluster.check_clock),
    DoctorCheck("Ray is new enough", "cluster", "cluster", cluster.check_ray),
    DoctorCheck("the cluster asks for a token", "cluster", "cluster", cluster.check_token),
    DoctorCheck("the inventory is complete", "cluster", "cluster", cluster.check_reading),
    DoctorCheck("Ray's list of jobs is short enough to read", "cluster", "cluster", cluster.check_job_list),
    DoctorCheck("Ray's autoscaler reports", "cluster", "cluster", cluster.check_autoscaler),
    DoctorCheck("the latest run could start", "cluster", "cluster", cluster.check_start),
    DoctorCheck("no run hangs", "cluster", "cluster", cluster.check_end),
    DoctorCheck("no placement group is leaked", "cluster", "whole cluster", cluster.check_groups),
    DoctorCheck("no lock is left behind", "cluster", "nodes", cluster.check_locks),
    DoctorCheck("nodes answer", "node", "nodes", nodes.check_answers),
    DoctorCheck("nodes offer the cards they have", "node", "cluster", nodes.check_gpu_counts),
    DoctorCheck("no card has failed", "node", "nodes", nodes.check_failed_cards),
    DoctorCheck("no other program uses the cards", "node", "cluster", nodes.check_foreign_memory),
    DoctorCheck("no engine runs without its replica", "node", "nodes", nodes.check_orphans),
    DoctorCheck("engines may use what they need", "node", "nodes", nodes.check_limits),
    DoctorCheck("shared memory is large enough and free", "node", "nodes", nodes.check_shared_memory),
    DoctorCheck("disks have room", "node", "cluster", nodes.check_disks),
    DoctorCheck("weights on disks are what their index says", "node", "cluster", nodes.check_weights),
    DoctorCheck("no cordon has expired", "node", "cluster", nodes.check_cordons),
    DoctorCheck("no replica is lost", "replica", "cluster", replicas.check_lost),
    DoctorCheck("every replica that was ready still is", "replica", "cluster", replicas.check_readiness),
    DoctorCheck("no replica keeps restarting", "replica", "cluster", replicas.check_restarts),
    DoctorCheck("compile caches are used", "replica", "cluster", replicas.check_caches),
    DoctorCheck("nothing is paused", "replica", "cluster", replicas.check_pauses),
    DoctorCheck("nothing has failed lately", "replica", "cluster", replicas.check_failures),
    DoctorCheck("no replica runs an older fleetctl", "replica", "cluster", replicas.check_agents),
    DoctorCheck("the fleet files have no problems", "fleet", "fleet", fleet.check_files),
    DoctorCheck("described models fit on their cards", "fleet", "fleet and cluster", fleet.check_memory),
    DoctorCheck("nodes have what the engines need", "fleet", "fleet and nodes", fleet.check_engines),
)


def diagnose(evidence: Evidence, repaired: Sequence[Repaired] = ()) -> Diagnosis:
    """Run every check whose basis is there; the others are listed with the reason."""
    runs, findings = list[CheckRun](), list[Diagnosed]()
    for check in CHECKS:
        skipped = evidence.lacks(check.basis)
        new = [] if skipped else list(check.run(evidence))
        runs.append(CheckRun(name=check.name, area=check.area, findings=len(new), skipped=skipped))
        findings += new
    answers = evidence.nodes or {}
    return Diagnosis(
        observed_at=evidence.now, source=evidence.seen.source if evidence.seen else None,
        fleet=evidence.fleet.name if evidence.fleet else None,
        nodes_examined=sum(not node.trouble for node in answers.values()),
        checks=runs, findings=findings, repaired=list(repaired))


def capacity_findings(records: Records, loaded: LoadedFleet, seen: Inventory) -> list[Diagnosed]:
    """Return findings that change capacity silently: foreign memory, expired cordons, pauses, cooling, recent failures.

    `records` has the cordons.
    """
    evidence = Evidence(seen.observed_at, loaded, seen=seen, vitals=Vitals(records=records))
    return [*nodes.check_foreign_memory(evidence), *nodes.check_cordons(evidence),
            *replicas.check_pauses(evidence), *replicas.check_failures(evidence)]
