"""Chooses the replicas from which new ones fetch their weights: ready and near ones, each for few nodes at a time.

A source serves a limited number of nodes per wave; nodes without a place get the files in a later wave, also from nodes
that fetched them before. So weights spread as a tree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any, NamedTuple

from fleetctl.agent.weights.views import view_id
from fleetctl.documents.canonical import in_order
from fleetctl.documents.fleet import Member, WorkerGroup
from fleetctl.documents.inventory import Inventory, dead_node_ids, host_port, is_lost, serves
from fleetctl.documents.quantity import grouped
from fleetctl.documents.weights import Weights
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.placement.claims import ReplicaShape

MOST_FETCHES = 4
"""Nodes that one source is planned for in the first wave; it also serves no more at a time."""
MOST_SOURCES = 3
"""Sources that each member gets, as far as others do not need them: one may be gone when the member starts."""
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
Labels = Mapping[str, str]


class _Source(NamedTuple):
    """One member that serves weights; `order` breaks ties between equal ones."""

    order: int
    replica: str
    node_id: str
    address: str
    artifact: str
    view: str | None
    whole: bool
    size: int | None
    wave: int = 1


class Fetch(NamedTuple):
    """A fetch of one node for all its members that need it; `near` = the labels that define which nodes are near."""

    node_id: str
    artifact: str
    view: str | None
    near: tuple[str, ...]


def add_weights(
    actions: Sequence[dict[str, Any]], models: Sequence[ResolvedModel], shapes: Mapping[str, ReplicaShape],
    inventory: Inventory,
) -> None:
    """Add `weights`, with sources, best first, to each member of the actions whose model has weights."""
    by_key = {model.key: weights_by_rank(model) for model in models}
    all_near, needed = domain_labels(shapes), list[tuple[dict[str, Any], Weights, Fetch]]()
    for action in actions:
        for member in action["members"] if by_key[action["model"]] else ():
            ranks = by_key[action["model"]][member["group"]]
            if weights := ranks[member["rank"]]:
                own_first = dict.fromkeys((*domain_labels({"": shapes[action["model"]]}), *all_near))
                view = view_of(weights, variables_of(action, member, len(ranks)))
                needed.append((member, weights, Fetch(member["nodeId"], weights.index, view, tuple(own_first))))
    chosen = sources_for([fetch for *_, fetch in needed], inventory) if needed else {}
    for member, weights, fetch in needed:
        member["weights"] = in_order(with_sources(weights, chosen[fetch]))


def sources_for(fetches: Sequence[Fetch], inventory: Inventory) -> dict[Fetch, list[dict[str, Any]]]:
    """Return the sources of each fetch, best first; each is used at most MOST_FETCHES times in the first wave."""
    names = {node.id: node.name for node in inventory.nodes}
    return {fetch: [
        {"address": one.address, "bytes": one.size if one.view == fetch.view else None, "node": names[one.node_id],
         "nodeId": one.node_id, "replica": one.replica, "view": one.view, "whole": one.whole,
         **({"wave": one.wave} if one.wave > 1 else {})} for one in sources]
        for fetch, sources in _Choice(inventory).chosen(fetches).items()}


def with_sources(weights: Weights, sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the weights of a member in the form of a plan."""
    plain = {"artifact": weights.index, "view": None, **weights.as_json(), "sources": list(sources)}
    del plain["index"]
    return plain


class _Choice:
    """Chooses sources, and counts the nodes that each is planned for."""

    def __init__(self, inventory: Inventory) -> None:
        self._labels = {node.id: node.labels for node in inventory.nodes}
        self._ready = grouped((source.artifact, source) for source in _ready_sources(inventory))
        self._free = {artifact: list(ready) for artifact, ready in self._ready.items()}
        self._planned: Counter[int] = Counter()

    def chosen(self, fetches: Sequence[Fetch]) -> dict[Fetch, list[_Source]]:
        """Return the sources of each fetch: first one for each in order, then more as far as possible."""
        found: dict[Fetch, list[_Source]] = {fetch: [] for fetch in fetches}
        for _ in range(MOST_SOURCES):
            for fetch, sources in found.items():
                if (best := self._best(fetch, sources)) is not None:
                    self._planned[best.order] += best.node_id != fetch.node_id
                    sources.append(best)
            self._free = {artifact: [one for one in free if self._planned[one.order] < MOST_FETCHES]
                          for artifact, free in self._free.items()}
        return {fetch: sorted(sources, key=lambda one: self._distance(fetch, one)) or self._later(fetch)
                for fetch, sources in found.items()}

    def _best(self, fetch: Fetch, taken: Sequence[_Source]) -> _Source | None:
        possible = (one for one in _fitting(fetch, self._free)
                    if one not in taken and (one.node_id == fetch.node_id or self._planned[one.order] < MOST_FETCHES))
        return min(possible, key=lambda one: self._rank(fetch, one), default=None)

    def _later(self, fetch: Fetch) -> list[_Source]:
        """Return the sources of a fetch for which none has a free place in the first wave, earliest wave first."""
        found = nsmallest(MOST_SOURCES, _fitting(fetch, self._ready),
                          key=lambda one: (_wave(self._planned[one.order]), *self._rank(fetch, one)))
        wave = _wave(self._planned[found[0].order]) if found else 0
        self._planned.update(one.order for one in found[:1])
        return [one._replace(wave=wave) for one in found]

    def _rank(self, fetch: Fetch, source: _Source) -> tuple[int, ...]:
        """Return the sort key of a source: the smallest is the best."""
        return (*self._distance(fetch, source), source.view != fetch.view, self._planned[source.order], source.order)

    def _distance(self, fetch: Fetch, source: _Source) -> tuple[bool, ...]:
        ours, theirs = self._labels.get(fetch.node_id, {}), self._labels.get(source.node_id, {})
        return (source.node_id != fetch.node_id,
                *(label not in ours or ours[label] != theirs.get(label) for label in fetch.near))


def _fitting(fetch: Fetch, sources: Mapping[str, Sequence[_Source]]) -> Iterator[_Source]:
    return (one for one in sources.get(fetch.artifact, ()) if one.whole or one.view == fetch.view)


def _wave(planned: int) -> int:
    """Return the wave in which a source, or a node served by it, has a free place after `planned` fetches.

    Each holder serves MOST_FETCHES nodes per wave: 4 in the first, 20 in the second, 100 in the third.
    """
    wave = 1
    while (MOST_FETCHES + 1) ** wave - 1 <= planned:
        wave += 1
    return wave


def _ready_sources(inventory: Inventory) -> Iterator[_Source]:
    dead, known = dead_node_ids(inventory), {node.id for node in inventory.nodes}
    replicas = [one for one in inventory.replicas  # WARM ones serve their weights, too
                if one.replica_id is not None and serves(one) and not is_lost(one, dead)]
    members = [(replica, member) for replica in sorted(replicas, key=lambda one: (one.model, one.replica_id or 0))
               for member in sorted(replica.members, key=lambda one: (one.group or "", one.copy_index, one.rank))]
    for order, (replica, member) in enumerate(members):
        if member.weights and member.address and member.node_id in known:
            yield _Source(order, f"{replica.model}/{replica.replica_id}", member.node_id,
                          host_port(member.address, member.weights.port), member.weights.artifact,
                          member.weights.view, member.weights.whole or member.weights.view is None,
                          member.weights.bytes)


def weights_by_rank(model: ResolvedModel) -> dict[str, list[Weights | None]]:
    """Return the weights of a model by group and rank; empty if no member has any."""
    if not any(member.weights for group in model.workers for member in group.members):
        return {}
    return {group.name: [member.weights for member in by_rank(group)] for group in model.workers}


def by_rank(group: WorkerGroup) -> list[Member]:
    """Return the member of each rank of a group."""
    members = sorted(group.members, key=lambda member: member.role == "Worker")
    return [member for member in members for _ in range(member.count or 1)]


def domain_labels(shapes: Mapping[str, ReplicaShape]) -> tuple[str, ...]:
    """Return the labels by which models define what is near: those of sameLabel, then those of spread."""
    same = [shape.same_label for shape in shapes.values()]
    spread = [shape.spread.label for shape in shapes.values() if shape.spread]
    return tuple(dict.fromkeys(label for label in (*same, *spread) if label))


def variables_of(action: Mapping[str, Any], member: Mapping[str, Any], size: int) -> dict[str, str]:
    """Return the variables of a member that are known before it starts."""
    found = {"MODEL": action["model"], "REPLICA_ID": action["replicaId"], "GROUP": member["group"],
             "COPY": member["copy"], "RANK": member["rank"], "GROUP_SIZE": size}
    return {f"FLEETCTL_{name}": str(value) for name, value in found.items()}


def view_of(weights: Weights, variables: Mapping[str, str]) -> str | None:
    """Return the name of the view that a member with these variables needs; None = all files."""
    view = _expanded(weights.view.model_dump(exclude_none=True), variables) if weights.view else None
    return view_id(view, int(variables["FLEETCTL_RANK"]), int(variables["FLEETCTL_GROUP_SIZE"]), weights.index)


def _expanded(value: Any, variables: Mapping[str, str]) -> Any:  # noqa: ANN401  any JSON value
    """Return a view with its variables expanded as the agent does: `$$` is a dollar sign."""
    if isinstance(value, dict):
        return {key: _expanded(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item, variables) for item in value]
    if not isinstance(value, str):
        return value
    return _REFERENCE.sub(lambda match: "$" if match[1] is None else variables.get(match[1], match[0]), value)
