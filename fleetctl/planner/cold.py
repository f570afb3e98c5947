"""The minimum of `cold`: which nodes lack weights that the fleet file keeps on disk, and what they fetch, from where.

Also the fetches of nodes where a replica is about to start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.documents.base import as_datetime
from fleetctl.documents.canonical import in_order
from fleetctl.documents.fleet import Member
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.plan import ModelRow
from fleetctl.documents.quantity import count_of
from fleetctl.documents.selector import matches
from fleetctl.documents.weights import Weights
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.actions import action_of, lifecycle_of, unclaimed
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.weights import (
    MOST_FETCHES,
    NodeFetch,
    domain_labels,
    variables_of,
    view_of,
    with_sources,
)

if TYPE_CHECKING:
    from fleetctl.planner.placement.ledger.ledger import LedgerNode
    from fleetctl.planner.sources import Ready


class WeightsPart(NamedTuple):
    """One artifact of a model: the view to fetch, and a member that needs it, with the variables it would have."""

    weights: Weights
    view: str | None
    member: Member
    group: str
    copy_index: int
    rank: int
    variables: Mapping[str, str]


def parts_of(model: ResolvedModel) -> list[WeightsPart]:
    """Return each artifact of a model, of all its variants, once.

    An artifact of which different views are needed is fetched whole.
    """
    parts: dict[str, WeightsPart] = {}
    for part in _all_parts(model):
        first = parts.setdefault(part.weights.index, part)
        if first.view != part.view:
            whole = first.weights.model_copy(update={"view": None})
            parts[part.weights.index] = first._replace(weights=whole, view=None)
    return list(parts.values())


def _all_parts(model: ResolvedModel) -> Iterator[WeightsPart]:
    for group in (group for one in model.alternatives for group in one.workers):
        ranks = group.by_rank
        for rank, member in enumerate(ranks):
            if not member.weights:
                continue
            for copy, replica in product(range(min(group.copies, 2)), range(2)):
                variables = variables_of({"model": model.key, "replicaId": replica},
                                         {"group": group.name, "copy": copy, "rank": rank}, ranks)
                view = view_of(member.weights, variables)
                yield WeightsPart(member.weights, view, member, group.name, copy, rank, variables)


def orders_for(
    model: ResolvedModel, nodes: Mapping[str, Sequence[WeightsPart]], ready: Ready
) -> dict[str, list[dict[str, Any]]]:
    """Return the fetches for the agent, by node id.

    At most as many nodes fetch at a time as one source may serve, so sources are chosen for that many at once.
    """
    from fleetctl.planner.sources import sources_for  # NumPy

    orders, todo = dict[str, list[dict[str, Any]]](), list(nodes.items())
    near = domain_labels([replica_shape(one) for one in model.alternatives])
    for begin in range(0, len(todo), MOST_FETCHES):
        batch = todo[begin:begin + MOST_FETCHES]
        fetches = {(node_id, part.weights.index): NodeFetch(node_id, part.weights.index, part.view, near)
                   for node_id, parts in batch for part in parts}
        chosen = sources_for(list(fetches.values()), ready)
        for node_id, parts in batch:
            orders[node_id] = [{
                "weights": with_sources(part.weights, chosen[fetches[node_id, part.weights.index]]),
                "engine": {"env": part.member.engine.as_json()["env"]}, "variables": dict(part.variables),
            } for part in parts]
    return orders


class ColdFloor(NamedTuple):
    """A prefetch for each model with missing weights; `waiting` = nodes with a recent failure, by model."""

    prefetches: list[dict[str, Any]]
    waiting: dict[str, int]

    @property
    def onto(self) -> dict[str, int]:
        """How many nodes fetch the weights of each model."""
        return {prefetch["model"]: len({member["nodeId"] for member in prefetch["members"]})
                for prefetch in self.prefetches}

    def shown_in(self, rows: Sequence[ModelRow]) -> list[ModelRow]:
        """Return the rows of the models with the number of nodes that fetch their weights, or wait after a failure."""
        nodes, result = self.onto, []
        for row in rows:
            reason = row.reason
            if fetching := nodes.get(row.key, 0):
                reason = f"{reason.removeprefix('nothing to do: ')}; {count_of(fetching, 'node')} to fetch its weights"
            if waiting := self.waiting.get(row.key):
                reason += f"; {count_of(waiting, 'node')} failed to fetch its weights: left alone for a while"
            result.append(row.model_copy(update={"fetch": fetching, "reason": reason}) if fetching or waiting else row)
        return result


def cold_floor(
    models: Sequence[ResolvedModel], inventory: Inventory, nodes: Sequence[LedgerNode], retry_after_s: float
) -> ColdFloor:
    """Return the weights that nodes must fetch.

    Only nodes that take new replicas and whose disk is known count: otherwise a fetch would be repeated in every plan.
    A fetch that failed less than `retry_after_s` seconds ago waits.
    """
    from fleetctl.planner.sources import find_ready  # NumPy

    floor = ColdFloor([], {})
    open_nodes = {node.id for node in nodes if node.open}
    ready = cache(lambda: find_ready(inventory))
    for model in models:
        if model.cold is None:
            continue
        parts, to_fetch, names, waiting = parts_of(model), dict[str, list[WeightsPart]](), dict[str, str](), 0
        for node in sorted(inventory.nodes, key=lambda node: (node.name, node.id)):
            if node.id not in open_nodes or not _is_selected(node, model.cold):
                continue
            missing = [part for part in parts if _lacks(node, part)]
            now = [part for part in missing if not _failed_recently(node, part, inventory, retry_after_s)]
            waiting += len(now) < len(missing)
            if now:
                to_fetch[node.id], names[node.id] = now, node.name
        if waiting:
            floor.waiting[model.key] = waiting
        if to_fetch:
            floor.prefetches.append(_document(model, to_fetch, names, ready()))
    return floor


def _document(
    model: ResolvedModel, to_fetch: Mapping[str, Sequence[WeightsPart]], names: Mapping[str, str], ready: Ready
) -> dict[str, Any]:
    members = []
    for node_id, orders in orders_for(model, to_fetch, ready).items():
        for part, order in zip(to_fetch[node_id], orders, strict=True):
            member = unclaimed(part.group, part.copy_index, part.rank, part.member.role, node_id, names[node_id])
            members.append(in_order({**member, "variables": order["variables"], "weights": order["weights"]}))
    return action_of(model, "prefetch", members, lifecycle=lifecycle_of(model))


def kept_on(model: ResolvedModel, inventory: Inventory) -> tuple[list[str], list[str]]:
    """Return the names of the nodes that keep a model's weights, and of those that should but lack some."""
    parts, nodes = parts_of(model), dict[bool, list[str]]()
    for node in inventory.nodes:
        if node.cold is not None and node.cordon is None and model.cold is not None and _is_selected(node, model.cold):
            nodes.setdefault(any(_lacks(node, part) for part in parts), []).append(node.name)
    return nodes.get(False, []), nodes.get(True, [])


def _is_selected(node: Node, selector: Mapping[str, str]) -> bool:
    return node.state == "ALIVE" and matches(selector, node.all_labels)


def _lacks(node: Node, part: WeightsPart) -> bool:
    return node.cold is not None and not any(
        held.artifact == part.weights.index and held.view in (None, part.view) for held in node.cold)


def _failed_recently(node: Node, part: WeightsPart, inventory: Inventory, retry_after_s: float) -> bool:
    """Return whether a fetch of these weights to a node failed less than `retry_after_s` seconds ago."""
    return any(failed.artifact == part.weights.index
               and (as_datetime(inventory.observed_at) - as_datetime(failed.at)).total_seconds() < retry_after_s
               for failed in node.unfetched)
