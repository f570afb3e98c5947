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
class Check:
    """One check. `name` = the statement that holds if it finds nothing; `basis` = the evidence it needs."""

    name: str
    area: Area
    basis: Basis
    run: Callable[[Evidence], Iterable[Diagnosed]]


CHECKS = (
    Check("the cluster answers and accepts this client", "client", "nothing", cluster.check_reach),
    Check("the clocks agree", "client", "cluster", cluster.check_clock),
    Check("Ray is new enough", "cluster", "cluster", cluster.check_ray),
    Check("the cluster asks for a token", "cluster", "cluster", cluster.check_token),
    Check("the inventory is complete", "cluster", "cluster", cluster.check_reading),
    Check("Ray's list of jobs is short enough to read", "cluster", "cluster", cluster.check_job_list),
    Check("Ray's autoscaler reports", "cluster", "cluster", cluster.check_autoscaler),
    Check("the latest run could start", "cluster", "cluster", cluster.check_start),
    Check("no run hangs", "cluster", "cluster", cluster.check_end),
    Check("no placement group is leaked", "cluster", "whole cluster", cluster.check_groups),
    Check("no lock is left behind", "cluster", "nodes", cluster.check_locks),
    Check("nodes answer", "node", "nodes", nodes.check_answers),
    Check("nodes offer the cards they have", "node", "cluster", nodes.check_gpu_counts),
    Check("no card has failed", "node", "nodes", nodes.check_failed_cards),
    Check("no other program uses the cards", "node", "cluster", nodes.check_foreign_memory),
    Check("no engine runs without its replica", "node", "nodes", nodes.check_orphans),
    Check("engines may use what they need", "node", "nodes", nodes.check_limits),
    Check("shared memory is large enough and free", "node", "nodes", nodes.check_shared_memory),
    Check("disks have room", "node", "cluster", nodes.check_disks),
    Check("weights on disks are what their index says", "node", "cluster", nodes.check_weights),
    Check("no cordon has expired", "node", "cluster", nodes.check_cordons),
    Check("no replica is lost", "replica", "cluster", replicas.check_lost),
    Check("every replica that was ready still is", "replica", "cluster", replicas.check_readiness),
    Check("no replica keeps restarting", "replica", "cluster", replicas.check_restarts),
    Check("nothing is paused", "replica", "cluster", replicas.check_pauses),
    Check("nothing has failed lately", "replica", "cluster", replicas.check_failures),
    Check("no replica runs an older fleetctl", "replica", "cluster", replicas.check_agents),
    Check("the fleet files have no problems", "fleet", "fleet", fleet.check_files),
    Check("nodes have what the engines need", "fleet", "fleet and nodes", fleet.check_engines),
)


def diagnose(evidence: Evidence, repaired: Sequence[Repaired] = ()) -> Diagnosis:
    """Run every check whose basis is there; the others are listed with the reason."""
    runs, findings = list[CheckRun](), list[Diagnosed]()
    for check in CHECKS:
        skipped = evidence.lacks(check.basis)
        found = [] if skipped else list(check.run(evidence))
        runs.append(CheckRun(name=check.name, area=check.area, findings=len(found), skipped=skipped))
        findings += found
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
