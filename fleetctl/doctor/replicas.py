"""Replicas: none is lost, and none restarts again and again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.inventory import LIVE_STATES, Replica, dead_node_ids, is_lost

MANY_RESTARTS = 3


def check_lost(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield ours that are live for Ray and cannot serve."""
    dead = dead_node_ids(evidence.inventory)
    for replica in _ours(evidence):
        if is_lost(replica, dead):
            why = "its node is dead" if replica.constructed else "its constructor never returned"
            yield Diagnosed(
                code="REPLICA_LOST", severity="error", area="replica", subject=_name(replica),
                message=f"{why}: it cannot serve, and is not counted",
                advice="the next apply starts another; evict this one so that Ray forgets it",
                command=f"fleetctl evict {shlex.quote(_name(replica))}")


def check_restarts(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield ours that are being restarted, or were many times."""
    dead = dead_node_ids(evidence.inventory)
    for replica in _ours(evidence):
        restarting = replica.state == "RESTARTING"
        if is_lost(replica, dead) or not (restarting or replica.restarts >= MANY_RESTARTS):
            continue
        why = f" ({replica.error})" if replica.error else ""
        yield Diagnosed(
            code="REPLICA_RESTARTS", severity="warning", area="replica", subject=_name(replica),
            message=(f"it is being restarted, for the {replica.restarts or 1}. time{why}" if restarting
                     else f"it was restarted {replica.restarts} times"),
            advice="its log says why; after its last restart (`restart.max`) it is gone",
            command=f"fleetctl logs {shlex.quote(_name(replica))}")


def _ours(evidence: Evidence) -> Iterator[Replica]:
    """Yield the replicas of the fleet, of every fleet without one, that are HOT and live for Ray."""
    for replica in evidence.inventory.replicas:
        ours = replica.level == "HOT" and replica.fleet and replica.replica_id is not None
        if ours and replica.state in LIVE_STATES and (
                evidence.fleet is None or replica.fleet == evidence.fleet.name):
            yield replica


def _name(replica: Replica) -> str:
    return f"{replica.model}/{replica.replica_id}"
