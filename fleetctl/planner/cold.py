"""The floor of `cold`: which nodes lack weights that the fleet file keeps on their disks, and what they fetch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetctl.documents.base import as_datetime
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.plan import ModelRow
from fleetctl.documents.quantity import count_of
from fleetctl.documents.selector import matches
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.placement.claims import NODE_ID_LABEL
from fleetctl.planner.prefetch import Part, orders_for, parts_of

if TYPE_CHECKING:
    from fleetctl.planner.placement.ledger.ledger import LedgerNode


def prefetches(
    models: Sequence[ResolvedModel], inventory: Inventory, nodes: Sequence[LedgerNode], alone_s: float
) -> Iterator[dict[str, Any]]:
    """Yield a `Prefetch` for each model of which nodes lack weights.

    Only nodes that take new replicas and whose disk is known: what is not known is not fetched again and again. What
    failed on a node less than `alone_s` seconds ago is left alone there.
    """
    open_nodes = {node.id for node in nodes if node.open}
    for model in models:
        if model.cold is None:
            continue
        parts = parts_of(model)
        short = {node.id: lacking for node in sorted(inventory.nodes, key=lambda node: (node.name, node.id))
                 if node.id in open_nodes and _is_meant(node, model.cold)
                 and (lacking := [part for part in parts if _lacks(node, part)
                                  and not _failed(node, part, inventory, alone_s)])}
        if short:
            names = {node.id: node.name for node in inventory.nodes}
            yield {"id": f"{model.key}/prefetch", "op": "prefetch", "model": model.key, "specHash": model.spec_hash,
                   "timeout": float(model.startup_timeout_s), "nodes": [
                       {"nodeId": node_id, "node": names[node_id], "members": [
                           {"weights": order["weights"], "variables": order["variables"]} for order in orders]}
                       for node_id, orders in orders_for(model, short, inventory).items()]}


def kept_on(model: ResolvedModel, inventory: Inventory) -> tuple[list[str], list[str]]:
    """Return the names of the nodes that have what they are to keep of a model's weights, and of those that lack it."""
    parts, found = parts_of(model), dict[bool, list[str]]()
    for node in inventory.nodes:
        if node.cold is not None and node.cordon is None and model.cold is not None and _is_meant(node, model.cold):
            found.setdefault(any(_lacks(node, part) for part in parts), []).append(node.name)
    return found.get(False, []), found.get(True, [])


def left_alone(
    models: Sequence[ResolvedModel], inventory: Inventory, nodes: Sequence[LedgerNode], alone_s: float
) -> dict[str, int]:
    """Return by model on how many nodes its weights are not fetched, because that failed a while ago."""
    open_nodes = {node.id for node in nodes if node.open}
    failed = [node for node in inventory.nodes if node.unfetched and node.id in open_nodes]
    counts = {model.key: sum(_is_meant(node, model.cold) and any(
        _lacks(node, part) and _failed(node, part, inventory, alone_s) for part in parts_of(model))
        for node in failed) for model in models if failed and model.cold is not None}
    return {key: count for key, count in counts.items() if count}


def with_fetches(
    rows: list[ModelRow], fetched: Sequence[Mapping[str, Any]], alone: Mapping[str, int]
) -> list[ModelRow]:
    """Return the rows of the models, with the number of nodes that fetch their weights, or are left `alone`."""
    nodes = {one["model"]: len(one["nodes"]) for one in fetched}
    rows = [row.model_copy(update={"fetch": count, "reason": (
        f"{row.reason.removeprefix('nothing to do: ')}; {count_of(count, 'node')} to fetch its weights")})
            if (count := nodes.get(row.key)) else row for row in rows]
    return [row.model_copy(update={"reason": (
        f"{row.reason}; {count_of(count, 'node')} failed to fetch its weights: left alone for a while")})
            if (count := alone.get(row.key)) else row for row in rows]


def _is_meant(node: Node, selector: Mapping[str, str]) -> bool:
    return node.state == "ALIVE" and matches(selector, {NODE_ID_LABEL: node.id, **node.labels})


def _lacks(node: Node, part: Part) -> bool:
    return node.cold is not None and not any(
        there.artifact == part.weights.index and there.view in (None, part.view) for there in node.cold)


def _failed(node: Node, part: Part, inventory: Inventory, alone_s: float) -> bool:
    """Return whether these weights could not be brought onto a node less than `alone_s` seconds ago."""
    now = as_datetime(inventory.observed_at)
    return any(one.artifact == part.weights.index and (now - as_datetime(one.at)).total_seconds() < alone_s
               for one in node.unfetched)
