"""All checks in their order, and the diagnosis that they make."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.doctor import (
    agents,
    answers,
    clock,
    cordons,
    disks,
    engines,
    failures,
    fleet_files,
    foreign_memory,
    gpu_counts,
    groups,
    locks,
    orphans,
    ray_version,
    reach,
    reading,
    replicas,
    runs,
)
from fleetctl.doctor.evidence import Check, Evidence
from fleetctl.documents.diagnosis import CheckRun, Diagnosed, Diagnosis, Repaired

CHECKS = (
    Check("the cluster answers and accepts this client", "client", "nothing", reach.check),
    Check("the clocks agree", "client", "cluster", clock.check),
    Check("Ray is new enough", "cluster", "cluster", ray_version.check),
    Check("the cluster can be read whole", "cluster", "cluster", reading.check),
    Check("the latest run could start", "cluster", "cluster", runs.check_start),
    Check("no run hangs", "cluster", "cluster", runs.check_end),
    Check("no placement group of ours is left", "cluster", "whole cluster", groups.check),
    Check("no lock is left", "cluster", "nodes", locks.check),
    Check("nodes answer", "node", "nodes", answers.check),
    Check("nodes offer the cards they have", "node", "cluster", gpu_counts.check),
    Check("no card is in use by others", "node", "cluster", foreign_memory.check),
    Check("no engine runs without its replica", "node", "nodes", orphans.check),
    Check("disks have room", "node", "cluster", disks.check),
    Check("no cordon has ended by itself", "node", "cluster", cordons.check),
    Check("no replica is lost", "replica", "cluster", replicas.check_lost),
    Check("no replica restarts", "replica", "cluster", replicas.check_restarts),
    Check("nothing has failed lately", "replica", "cluster", failures.check),
    Check("no replica is of an older fleetctl", "replica", "cluster", agents.check),
    Check("the fleet files have no problem", "fleet", "fleet", fleet_files.check),
    Check("nodes have what the engines need", "fleet", "fleet and nodes", engines.check),
)


def diagnose(evidence: Evidence, repaired: Sequence[Repaired] = ()) -> Diagnosis:
    """Make every check that can be made; one that cannot says why."""
    runs, findings = list[CheckRun](), list[Diagnosed]()
    for check in CHECKS:
        lacking = evidence.lacks(check.basis)
        found = [] if lacking else list(check.run(evidence))
        runs.append(CheckRun(name=check.name, area=check.area, findings=len(found), skipped=lacking))
        findings += found
    nodes = evidence.nodes or {}
    return Diagnosis(
        observed_at=evidence.now, source=evidence.seen.source if evidence.seen else None,
        fleet=evidence.fleet.name if evidence.fleet else None,
        nodes_examined=sum(not node.trouble for node in nodes.values()),
        checks=runs, findings=findings, repaired=list(repaired))
