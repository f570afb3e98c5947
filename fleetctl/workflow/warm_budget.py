"""The memory budget of a node for the weights of WARM replicas, and the memory that more of them would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Inventory, Node, Replica
from fleetctl.documents.quantity import format_bytes
from fleetctl.errors import FleetctlError
from fleetctl.planner.notes import policy_of


@dataclass(frozen=True, slots=True)
class WarmRoom:
    """One node, in bytes: its budget for weights, the part `held` by WARM replicas, and the size of the new weights."""

    node: Node
    budget: int
    held: int
    more: int

    def __str__(self) -> str:
        return (f"{self.node.name}: {format_bytes(self.more)} of weights stay in memory; with those already WARM "
                f"{format_bytes(self.held + self.more)} of at most {format_bytes(self.budget)}")


def budget_of(node: Node, policies: Sequence[NodePolicy]) -> int:
    """Return the bytes of weights that may be WARM on a node: the fleet file's value, else half of Ray's memory."""
    warm = policy_of(node, policies).warm
    return node.resources.total.memory // 2 if warm is None else warm


def rooms_for(seen: Inventory, chosen: Sequence[Replica], policies: Sequence[NodePolicy] = ()) -> list[WarmRoom]:
    """Return the nodes on which the weights of these replicas would stay; raises FleetctlError if they do not fit.

    Weights that an interrupted eviction has already loaded count once. Replicas without weights are left to the agent,
    which reports that they stay.
    """
    more: Counter[str] = Counter()
    for replica in chosen:
        folders = {(member.node_id, member.weights.artifact, member.weights.view): member.weights.bytes or 0
                   for member in replica.members if member.weights and member.node_id}
        for (node_id, *_), size in folders.items():
            more[node_id] += size
    if not more:
        raise FleetctlError("nothing can be WARM: no member that is ready has `weights` in the fleet file",
                            hint="docs/weights.md says how fleetctl fetches them")
    held: Counter[str | None] = Counter()
    again = {(replica.model, replica.replica_id) for replica in chosen}
    for replica in seen.replicas:
        if replica.level == "WARM" and (replica.model, replica.replica_id) not in again:
            for member in replica.members:
                held[member.node_id] += member.memory
    rooms = [WarmRoom(node, budget_of(node, policies), held[node.id], more[node.id])
             for node in seen.nodes if node.id in more]
    if full := [room for room in rooms if room.held + room.more > room.budget]:
        raise FleetctlError("; ".join(map(str, full)), hint="`fleetctl evict` a WARM replica to free memory")
    return rooms
