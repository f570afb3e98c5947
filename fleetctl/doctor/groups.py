"""Cluster: no placement group of a gang is left whose replica is gone. It would hold its GPUs permanently."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.quantity import amount_of
from fleetctl.inventory.names import parse_actor_name
from fleetctl.inventory.used import PlacementGroup


def leaked(evidence: Evidence) -> list[PlacementGroup]:
    """Return the groups that are named as ours, and of which no live actor has the name.

    A coordinator has its name before it asks for its group, and the groups were listed before the actors. Which
    namespace a group is in only the agent can tell: it asks again before it removes one. Where the actors could not be
    read whole, none is.
    """
    if not evidence.inventory.complete:
        return []
    live = {one.foreign_id or f"ModelActor:{one.model}:{one.replica_id}" for one in evidence.inventory.replicas
            if one.level == "HOT"}
    return [group for group in evidence.vitals.groups if group.name not in live and group.group_id
            and (name := parse_actor_name(group.name)) and name.replica_id is not None and name.level == "HOT"]


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each with what it holds."""
    names = {node.id: node.name for node in evidence.inventory.nodes}
    for group in leaked(evidence):
        held = sum(claim.gpus for _, claim in group.held)
        nodes = ", ".join(dict.fromkeys(names.get(node_id, node_id) for node_id, _ in group.held)) or "no node"
        yield Diagnosed(
            code="LEAKED_GROUP", severity="error", area="cluster", subject=group.name,
            message=f"its placement group holds {amount_of(held, 'GPU')} on {nodes}, and no "
                    "replica of that name lives",
            advice="--fix removes it, where it is in our namespace and its creator is dead",
            command="fleetctl doctor --fix")
