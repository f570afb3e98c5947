"""The nodes for `prefetch` and `prune`, and the weights that fleet files name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.doctor.fleet import candidates
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.selector import LabelSelector
from fleetctl.errors import FleetctlError, FleetFileError
from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.cold import Part, parts_of
from fleetctl.workflow.invocation import Invocation


def nodes_for(
    fleet: ResolvedFleet, model: ResolvedModel, seen: Inventory, chosen: Sequence[Node] | None
) -> Mapping[str, Sequence[Part]]:
    """Return the parts of a model's weights to fetch, by node id.

    All parts on the `chosen` nodes, if given; otherwise the parts of the members that may run on each node.
    """
    parts = parts_of(model)
    if not parts:
        raise FleetctlError(f"{model.key} has no weights in the fleet file, so there is nothing to fetch",
                            hint="see `fleetctl explain spec.models.workers.members.weights`")
    if chosen is not None:
        return {node.id: parts for node in chosen}
    found: dict[str, list[Part]] = {}
    for part in parts:
        members = [member for group in model.workers for member in group.members
                   if member.weights and member.weights.index == part.weights.index]
        for node in {node.id: node for member in members for node in candidates(fleet, member, seen.nodes)}.values():
            found.setdefault(node.id, []).append(part)
    return {node.id: found[node.id] for node in seen.nodes if node.id in found}


def selected(seen: Inventory, selector: LabelSelector | None) -> list[Node]:
    """Return the living nodes with these labels; raises FleetctlError if none has them."""
    found = [node for node in seen.nodes
             if node.state == "ALIVE" and (selector is None or selector.matches(node.all_labels))]
    if selector is not None and not found:
        raise FleetctlError(f"no node with the labels {selector.text} is alive",
                            hint="`fleetctl inventory` lists the nodes")
    return found


def fleets_in(invocation: Invocation, files: Sequence[str]) -> list[ResolvedFleet]:
    """Return the one fleet that all files form together, else the fleet of each file; raises FleetFileError."""
    try:
        return [load_fleet(files, stdin=invocation.stdin)]
    except FleetFileError as together:
        try:
            return [load_fleet([file], stdin=invocation.stdin) for file in files]
        except FleetFileError:
            raise together from None


def named_weights(fleets: Sequence[ResolvedFleet], seen: Inventory) -> list[str]:
    """Return every artifact that a model of the fleets names or a replica of the cluster serves."""
    files = [member.weights.index for fleet in fleets for model in fleet.models for group in model.workers
             for member in group.members if member.weights]
    served = [member.weights.artifact for replica in seen.replicas for member in replica.members if member.weights]
    return list(dict.fromkeys((*files, *served)))
