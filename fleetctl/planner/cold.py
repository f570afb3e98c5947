"""The floor of `cold`: which nodes lack weights that the fleet file keeps on their disks, and what they fetch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.documents.base import as_datetime
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.plan import ModelRow
from fleetctl.documents.quantity import count_of
from fleetctl.documents.selector import matches
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.prefetch import Part, orders_for, parts_of

if TYPE_CHECKING:
    from fleetctl.planner.placement.ledger.ledger import LedgerNode


class ColdFloor(NamedTuple):
    """A `Prefetch` for each model of which nodes lack weights; and on how many, by model, those that failed wait."""

    prefetches: list[dict[str, Any]]
    left_alone: dict[str, int]


def cold_floor(
    models: Sequence[ResolvedModel], inventory: Inventory, nodes: Sequence[LedgerNode], alone_s: float
) -> ColdFloor:
    """Return what nodes are to fetch.

    Only nodes that take new replicas and whose disk is known: what is not known is not fetched again and again. What
    failed on a node less than `alone_s` seconds ago is left alone there.
    """
    floor = ColdFloor([], {})
    open_nodes = {node.id for node in nodes if node.open}
    for model in models:
        if model.cold is None:
            continue
        parts, short, names, waiting = parts_of(model), dict[str, list[Part]](), dict[str, str](), 0
        for node in sorted(inventory.nodes, key=lambda node: (node.name, node.id)):
            if node.id not in open_nodes or not _is_meant(node, model.cold):
                continue
            lacking = [part for part in parts if _lacks(node, part)]
            todo = [part for part in lacking if not _failed(node, part, inventory, alone_s)]
            waiting += len(todo) < len(lacking)
            if todo:
                short[node.id], names[node.id] = todo, node.name
        if waiting:
            floor.left_alone[model.key] = waiting
        if short:
            floor.prefetches.append(_document(model, names, orders_for(model, short, inventory)))
    return floor


def _document(
    model: ResolvedModel, names: Mapping[str, str], orders: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    return {"id": f"{model.key}/prefetch", "op": "prefetch", "model": model.key, "specHash": model.spec_hash,
            "timeout": float(model.startup_timeout_s), "nodes": [
                {"nodeId": node_id, "node": names[node_id], "members": [
                    {"weights": order["weights"], "variables": order["variables"]} for order in here]}
                for node_id, here in orders.items()]}


def kept_on(model: ResolvedModel, inventory: Inventory) -> tuple[list[str], list[str]]:
    """Return the names of the nodes that have what they are to keep of a model's weights, and of those that lack it."""
    parts, found = parts_of(model), dict[bool, list[str]]()
    for node in inventory.nodes:
        if node.cold is not None and node.cordon is None and model.cold is not None and _is_meant(node, model.cold):
            found.setdefault(any(_lacks(node, part) for part in parts), []).append(node.name)
    return found.get(False, []), found.get(True, [])


def with_fetches(rows: list[ModelRow], floor: ColdFloor) -> list[ModelRow]:
    """Return the rows of the models, with the number of nodes that fetch their weights, or are left alone."""
    nodes = {one["model"]: len(one["nodes"]) for one in floor.prefetches}
    rows = [row.model_copy(update={"fetch": count, "reason": (
        f"{row.reason.removeprefix('nothing to do: ')}; {count_of(count, 'node')} to fetch its weights")})
            if (count := nodes.get(row.key)) else row for row in rows]
    return [row.model_copy(update={"reason": (
        f"{row.reason}; {count_of(count, 'node')} failed to fetch its weights: left alone for a while")})
            if (count := floor.left_alone.get(row.key)) else row for row in rows]


def _is_meant(node: Node, selector: Mapping[str, str]) -> bool:
    return node.state == "ALIVE" and matches(selector, node.all_labels)


def _lacks(node: Node, part: Part) -> bool:
    return node.cold is not None and not any(
        there.artifact == part.weights.index and there.view in (None, part.view) for there in node.cold)


def _failed(node: Node, part: Part, inventory: Inventory, alone_s: float) -> bool:
    """Return whether these weights could not be brought onto a node less than `alone_s` seconds ago."""
    return any(one.artifact == part.weights.index
               and (as_datetime(inventory.observed_at) - as_datetime(one.at)).total_seconds() < alone_s
               for one in node.unfetched)
