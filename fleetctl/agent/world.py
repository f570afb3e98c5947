"""What the agent reads just before it acts: nodes, free resources, live replicas. Ray's tables, no dashboard."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Set

import ray
from ray._private import state

from .claims import claim_of

SLACK = 1e-6


def dead_or_draining(node_id: str) -> Optional[str]:
    """Return what keeps a node from taking anything new, or None."""
    alive = {record["NodeID"] for record in ray.nodes() if record["Alive"]}
    if node_id not in alive:
        return "the node is dead or gone"
    try:
        draining = state.state.get_draining_nodes()
    except Exception:  # not known to this Ray: then it has no draining either
        return None
    return "the node is draining" if node_id in draining else None


def shortfalls(members: List[Mapping[str, Any]]) -> List[str]:
    """Compare what Ray has free on each node with what `members` claim; return need and free where it is short."""
    claims: Dict[str, Dict[str, float]] = {}
    names: Dict[str, str] = {}
    for member in members:
        names[member["nodeId"]] = member["node"]
        claim = claims.setdefault(member["nodeId"], {})
        for resource, amount in claim_of(member).items():
            claim[resource] = claim.get(resource, 0.0) + amount
    free = state.available_resources_per_node()
    return [
        f"{names[node_id]} has {free.get(node_id, {}).get(resource, 0.0):g} {resource} free, {amount:g} needed"
        for node_id, claim in sorted(claims.items())
        for resource, amount in sorted(claim.items())
        if free.get(node_id, {}).get(resource, 0.0) + SLACK < amount
    ]


def taken_names() -> Set[str]:
    """Return the names of all actors of this namespace that are not dead."""
    return set(ray.util.list_named_actors())


def live_ids(model: str, names: Set[str], not_counted: Set[int]) -> List[int]:
    """Return the ids of a model's replicas among `names`, less those the plan does not count (lost, unmanaged)."""
    prefix = f"ModelActor:{model}:"
    tails = [name[len(prefix):] for name in names if name.startswith(prefix)]
    return sorted({int(tail) for tail in tails if tail.isdigit()} - not_counted)


def actor_record(actor_id: str) -> Dict[str, Any]:
    """Return Ray's record of one actor; empty when it has none."""
    return dict(state.actors(actor_id) or {})


def is_starting(name: str) -> bool:
    """Tell whether the named actor of our namespace is on its way: not up, and not gone."""
    try:
        actor_id = ray.get_actor(name)._actor_id.hex()
    except ValueError:
        return False
    return actor_record(actor_id).get("State") not in ("ALIVE", "DEAD", None)


def group_is_granted(name: str) -> bool:
    """Tell whether the placement group of that name has its resources on every node."""
    try:
        group = ray.util.get_placement_group(name)
    except ValueError:
        return False
    return bool(ray.util.placement_group_table(group)["state"] == "CREATED")


def has_worker(record: Mapping[str, Any]) -> bool:
    """Tell whether Ray has granted the actor a worker; until then it only waits for resources."""
    return bool(record.get("Address", {}).get("IPAddress"))
