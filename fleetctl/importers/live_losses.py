"""What of a live fleet its file does not say: other specs, raised caps, lost replicas, what no fleet owns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from fleetctl.documents.inventory import LIVE_STATES, Inventory, Replica, dead_node_ids, is_lost
from fleetctl.documents.quantity import some
from fleetctl.importers.draft import Loss

NAMED = 5
"""How many nodes are named."""


def other_specs(key: str, replicas: Sequence[Replica]) -> Iterator[Loss]:
    """Name the replicas that run another spec than the newest one, which is the last."""
    others: defaultdict[str, list[str]] = defaultdict(list)
    for replica in replicas:
        if replica.spec_hash != replicas[-1].spec_hash:
            others[f"spec {replica.spec_hash}" if replica.spec_hash else "an unknown spec"].append(
                str(replica.replica_id))
    for spec, ids in sorted(others.items()):
        who = f"replica {ids[0]} runs" if len(ids) == 1 else f"replicas {', '.join(ids)} run"
        yield Loss(None, key, f"{who} {spec}, which is not that of the newest one, and show as drift", "lost", key)


def crowded(key: str, replicas: Sequence[Replica], inventory: Inventory) -> Iterator[Loss]:
    """Name a cap that must have been raised: without a policy, a model without GPUs has one replica on a node."""
    if any(member.gpus or member.vram for replica in replicas for member in replica.members):
        return
    names = {node.id: node.name for node in inventory.nodes}
    on_node = Counter(node_id for replica in replicas
                      for node_id in {member.node_id for member in replica.members if member.node_id})
    several = sorted((names.get(node_id, node_id), count) for node_id, count in on_node.items() if count > 1)
    if several:
        shown = some([f"{count} on {name}" for name, count in several], NAMED)
        yield Loss(None, key, f"several replicas share a node ({shown}), which needs a maxReplicasPerModel in "
                   "spec.nodes where no GPU is claimed; until then some show as drift", "todo", key)


def left_out(inventory: Inventory, fleet: str) -> Iterator[Loss]:
    """Name what is not in the file: lost replicas of this fleet, those that are not HOT, and what no fleet owns."""
    dead = dead_node_ids(inventory)
    foreign: Counter[str] = Counter()
    for replica in inventory.replicas:
        name = f"{replica.model}/{replica.replica_id}"
        if replica.state not in LIVE_STATES:
            continue
        if replica.fleet is None or replica.replica_id is None:
            foreign[replica.model] += 1
        elif replica.fleet == fleet and is_lost(replica, dead):
            yield Loss(None, name, "its node is dead: not counted")
        elif replica.fleet == fleet and replica.level != "HOT":
            yield Loss(None, name, f"it is {replica.level}, and only HOT replicas count")
    for model, count in sorted(foreign.items()):
        yield Loss(None, model, f"{count} {'runs' if count == 1 else 'run'} without a fleet's mark: capacity in use, "
                   "not imported")


def other_fleets(live: Sequence[Replica], fleet: str) -> list[str]:
    """Say which other fleets have live replicas, as a note."""
    counts = Counter(replica.fleet or "" for replica in live if replica.fleet != fleet)
    listed = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
    return [f"Other fleets run here, too; --fleet imports one of them: {listed}."] if counts else []
