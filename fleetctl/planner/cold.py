"""The floor of `cold`: which nodes lack weights that the fleet file keeps on their disks, and what they fetch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.selector import matches
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.placement.claims import NODE_ID_LABEL
from fleetctl.planner.placement.ledger.ledger import LedgerNode
from fleetctl.planner.prefetch import Part, orders_for, parts_of


def prefetches(
    models: Sequence[ResolvedModel], inventory: Inventory, nodes: Sequence[LedgerNode]
) -> Iterator[dict[str, Any]]:
    """Yield a `Prefetch` for each model of which nodes lack weights.

    Only nodes that take new replicas and whose disk is known: what is not known is not fetched again and again.
    """
    open_nodes = {node.id for node in nodes if node.open}
    for model in models:
        if model.cold is None:
            continue
        parts = parts_of(model)
        short = {node.id: lacking for node in sorted(inventory.nodes, key=lambda node: (node.name, node.id))
                 if node.id in open_nodes and matches(model.cold, {NODE_ID_LABEL: node.id, **node.labels})
                 and (lacking := [part for part in parts if _lacks(node, part)])}
        if short:
            names = {node.id: node.name for node in inventory.nodes}
            yield {"id": f"{model.key}/prefetch", "op": "prefetch", "model": model.key, "specHash": model.spec_hash,
                   "timeout": float(model.startup_timeout_s), "nodes": [
                       {"nodeId": node_id, "node": names[node_id], "members": [
                           {"weights": order["weights"], "variables": order["variables"]} for order in orders]}
                       for node_id, orders in orders_for(model, short, inventory).items()]}


def _lacks(node: Node, part: Part) -> bool:
    return node.cold is not None and not any(
        there.artifact == part.weights.index and there.view in (None, part.view) for there in node.cold)
