"""Answers of the agent that several tests of `fleetctl apply` share."""

from __future__ import annotations

from typing import Any

from cluster_stand_in import ClusterStandIn, event

VERSION = event(0, "version", "fleetctl agent", version="1.0")


def outcome(kind: str, replica_id: int = 0, **more: Any) -> dict[str, Any]:
    """One row of the agent's summary."""
    return {"model": "org/one", "replicaId": replica_id, "outcome": kind, "nodes": ["node-a"], "message": "", **more}


def add_all_replicas(cluster: ClusterStandIn) -> None:
    """Add every replica that the fleet of two models wants on two nodes."""
    for number, node in enumerate(cluster.nodes):
        cluster.add_replica("org/one", number, node["node_id"])
    cluster.add_replica("org/two", 0, cluster.nodes[0]["node_id"], gpus=0)
