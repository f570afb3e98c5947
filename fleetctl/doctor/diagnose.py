"""All checks in their order, and the diagnosis that they make."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.doctor import client, cluster, fleet, nodes, replicas
from fleetctl.doctor.evidence import Check, Evidence
from fleetctl.documents.diagnosis import CheckRun, Diagnosed, Diagnosis, Repaired

CHECKS = (
    Check("the cluster answers and accepts this client", "client", "nothing", client.check_reach),
    Check("the clocks agree", "client", "cluster", client.check_clock),
    Check("Ray is new enough", "cluster", "cluster", cluster.check_ray),
    Check("the cluster can be read whole", "cluster", "cluster", cluster.check_reading),
    Check("the latest run could start", "cluster", "cluster", cluster.check_start),
    Check("no run hangs", "cluster", "cluster", cluster.check_end),
    Check("no placement group of ours is left", "cluster", "whole cluster", cluster.check_groups),
    Check("no lock is left", "cluster", "nodes", cluster.check_locks),
    Check("nodes answer", "node", "nodes", nodes.check_answers),
    Check("nodes offer the cards they have", "node", "cluster", nodes.check_gpu_counts),
    Check("no card is in use by others", "node", "cluster", nodes.check_foreign_memory),
    Check("no engine runs without its replica", "node", "nodes", nodes.check_orphans),
    Check("disks have room", "node", "cluster", nodes.check_disks),
    Check("no cordon has ended by itself", "node", "cluster", nodes.check_cordons),
    Check("no replica is lost", "replica", "cluster", replicas.check_lost),
    Check("no replica restarts", "replica", "cluster", replicas.check_restarts),
    Check("nothing has failed lately", "replica", "cluster", replicas.check_failures),
    Check("no replica is of an older fleetctl", "replica", "cluster", replicas.check_agents),
    Check("the fleet files have no problem", "fleet", "fleet", fleet.check_files),
    Check("nodes have what the engines need", "fleet", "fleet and nodes", fleet.check_engines),
)


def diagnose(evidence: Evidence, repaired: Sequence[Repaired] = ()) -> Diagnosis:
    """Make every check that can be made; one that cannot says why."""
    runs, findings = list[CheckRun](), list[Diagnosed]()
    for check in CHECKS:
        lacking = evidence.lacks(check.basis)
        found = [] if lacking else list(check.run(evidence))
        runs.append(CheckRun(name=check.name, area=check.area, findings=len(found), skipped=lacking))
        findings += found
    answers = evidence.nodes or {}
    return Diagnosis(
        observed_at=evidence.now, source=evidence.seen.source if evidence.seen else None,
        fleet=evidence.fleet.name if evidence.fleet else None,
        nodes_examined=sum(not node.trouble for node in answers.values()),
        checks=runs, findings=findings, repaired=list(repaired))
