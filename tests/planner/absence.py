"""The inventory without some replicas, and with additional nodes. Shares no code with the planner."""

from __future__ import annotations

from collections.abc import Collection

from simulated import WHOLE

from fleetctl.documents.inventory import Amounts, Gpu, Inventory, Node, NodeResources, Replica, ReplicaMember
from fleetctl.documents.plan import Addition


def name_of(replica: Replica) -> str:
    if replica.replica_id is None:
        return replica.foreign_id or replica.model
    return f"{replica.model}/{replica.replica_id}"


def without(inventory: Inventory, names: Collection[str]) -> Inventory:
    """Return the inventory without the named replicas and with their resources freed."""
    removed = [replica for replica in inventory.replicas if name_of(replica) in names and replica.state != "DEAD"]
    members = [member for replica in removed for member in replica.members]
    return inventory.model_copy(update={
        "replicas": [replica for replica in inventory.replicas if replica not in removed],
        "nodes": [_given_back(node, [member for member in members if member.node_id == node.id])
                  for node in inventory.nodes],
    })


def _given_back(node: Node, members: list[ReplicaMember]) -> Node:
    used = node.resources.used
    if used is not None:
        used = Amounts(
            gpu=max(0, used.gpu - sum(member.gpus for member in members) / WHOLE),
            cpu=max(0, used.cpu - sum(member.cpus for member in members) / WHOLE),
            memory=max(0, used.memory - sum(member.memory for member in members)),
        )
    cards = []
    for gpu in node.gpus:
        here = [member for member in members if gpu.index in member.gpu_indices]
        share = sum(min(member.gpus, WHOLE) for member in here) / WHOLE
        memory = sum(member.vram or min(member.gpus, WHOLE) * (gpu.memory_total or 0) // WHOLE for member in here)
        cards.append(gpu.model_copy(update={
            "share": None if gpu.share is None else max(0, gpu.share - share),
            "memory_used": None if gpu.memory_used is None else max(0, gpu.memory_used - memory),
        }))
    resources = node.resources.model_copy(update={"used": used})
    return node.model_copy(update={"gpus": cards, "resources": resources})


def extended(inventory: Inventory, additions: Collection[Addition], counts: Collection[int]) -> Inventory:
    """Return the inventory with `counts` empty nodes of each addition."""
    by_name = {node.name: node for node in inventory.nodes}
    nodes = list(inventory.nodes)
    for one, count in zip(additions, counts, strict=True):
        for _ in range(count):
            name = f"new-{len(nodes)}"
            like = by_name[one.like] if one.like is not None else None
            total = Amounts(gpu=one.gpus / WHOLE, cpu=one.cpus / WHOLE, memory=one.memory)
            if like is not None:
                assert (total, one.gpus) == (like.resources.total, round(like.resources.total.gpu * WHOLE))
            gpus = [gpu.model_copy(update={"memory_used": None, "share": None}) for gpu in like.gpus] if like else [
                Gpu(index=index, memory_total=one.vram) for index in range(one.gpus // WHOLE)]
            nodes.append(Node(id=name, name=name, labels={**(like.labels if like else {}), **one.labels}, gpus=gpus,
                              resources=NodeResources(total=total)))
    return inventory.model_copy(update={"nodes": nodes})
