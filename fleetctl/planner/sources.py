"""Chooses the replicas from which new ones fetch their weights: ready and near ones, each for few nodes at a time.

A source serves a limited number of nodes per wave; nodes without a place get the files in a later wave, also from nodes
that fetched them before. So weights spread as a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetctl.documents.canonical import in_order
from fleetctl.documents.inventory import Inventory, Node, address_of, dead_node_ids, host_port, is_lost
from fleetctl.documents.quantity import grouped
from fleetctl.documents.weights import Weights
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.ledger.ledger import LedgerNode
from fleetctl.planner.weights import (
    MOST_FETCHES,
    NodeFetch,
    domain_labels,
    members_by_rank,
    variables_of,
    view_of,
    with_sources,
)

Flags = NDArray[np.bool_]
MOST_SOURCES = 3
"""Sources that each member gets, as far as others do not need them: one may be gone when the member starts."""
FULL_WAVES = np.array([(MOST_FETCHES + 1) ** wave - 1 for wave in range(1, 20)])
"""How many nodes one source serves by the end of each wave, with the help of the nodes that have fetched before.

Each holder serves MOST_FETCHES nodes per wave: 4 in the first, 20 in the second, 100 in the third.
"""


class _Source(NamedTuple):
    """One member that serves weights."""

    replica: str
    node_id: str
    address: str
    artifact: str
    view: str | None
    whole: bool
    size: int | None
    wave: int = 1


def add_weights(
    actions: Sequence[dict[str, Any]], models: Sequence[ResolvedModel], shapes: Mapping[str, Sequence[ReplicaShape]],
    inventory: Inventory, nodes: Sequence[LedgerNode],
) -> None:
    """Add `weights`, with sources, best first, to each member of the actions whose model has weights.

    `shapes` = of each alternative of a model, by its key. `nodes` = those of the ledger, whose policy may limit the
    ports at which the member serves them.
    """
    by_variant = {(one.key, one.variant): (members_by_rank(one), shape) for model in models
                  for one, shape in zip(model.alternatives, shapes[model.key], strict=True)}
    all_near = domain_labels([shape for found in shapes.values() for shape in found])
    needed = list[tuple[dict[str, Any], Weights, NodeFetch]]()
    for action in actions:
        of_group, shape = by_variant[action["model"], action.get("variant", "")]
        for member in action["members"] if of_group else ():
            ranks = of_group[member["group"]]
            if weights := ranks[member["rank"]].weights:
                own_first = dict.fromkeys((*domain_labels([shape]), *all_near))
                view = view_of(weights, variables_of(action, member, ranks))
                needed.append((member, weights, NodeFetch(member["nodeId"], weights.index, view, tuple(own_first))))
    chosen = sources_for([fetch for *_, fetch in needed], find_ready(inventory)) if needed else {}
    ports = {node.id: {"ports": limit} for node in nodes if (limit := node.policy.weights_ports) is not None}
    for member, weights, fetch in needed:
        member["weights"] = in_order(with_sources(weights, chosen[fetch]) | ports.get(fetch.node_id, {}))


def sources_for(fetches: Sequence[NodeFetch], ready: Ready) -> dict[NodeFetch, list[dict[str, Any]]]:
    """Return the sources of each fetch, best first; each is used at most MOST_FETCHES times in the first wave."""
    return {fetch: [
        {"address": source.address, "bytes": source.size if source.view == fetch.view else None,
         "node": ready.nodes[source.node_id].name, "nodeId": source.node_id, "replica": source.replica,
         "view": source.view, "whole": source.whole, **({"wave": source.wave} if source.wave > 1 else {})}
        for source in sources]
        for fetch, sources in _Choice(ready, fetches).chosen().items()}


class Ready(NamedTuple):
    """The nodes of a cluster by id, and the ready sources by artifact."""

    nodes: Mapping[str, Node]
    pools: Mapping[str, _Pool]


class _Pool:
    """The ready sources of one artifact, in order; all of them are compared at once."""

    def __init__(self, sources: Sequence[_Source], nodes: Mapping[str, Node]) -> None:
        self.sources = sources
        self._labels = [nodes[source.node_id].labels for source in sources]
        self._columns = dict[str, tuple[dict[str | None, int], NDArray[np.int64]]]()
        self.whole = np.array([source.whole for source in sources], dtype=bool)

    def on_node(self, node_id: str) -> Flags:
        """Return which sources are on this node."""
        return self._equal("node_id", node_id, lambda: [source.node_id for source in self.sources])

    def with_view(self, view: str | None) -> Flags:
        """Return which sources serve this view."""
        return self._equal("view", view, lambda: [source.view for source in self.sources])

    def with_label(self, label: str, value: str) -> Flags:
        """Return which sources are on a node with this label."""
        return self._equal(f"label {label}", value, lambda: [labels.get(label) for labels in self._labels])

    def _equal(self, name: str, value: str | None, values: Callable[[], list[str | None]]) -> Flags:
        if name not in self._columns:
            codes = dict[str | None, int]()
            self._columns[name] = codes, np.array([codes.setdefault(value, len(codes)) for value in values()])
        codes, column = self._columns[name]
        return np.equal(column, codes.get(value, -1))


class _Choice:
    """Chooses sources for fetches, and counts the nodes that each is planned for."""

    def __init__(self, ready: Ready, fetches: Sequence[NodeFetch]) -> None:
        self._nodes = ready.nodes
        self._fetches = fetches
        self._pools = {fetch.artifact: ready.pools.get(fetch.artifact) or _Pool((), {}) for fetch in fetches}
        self._planned = {key: np.zeros(len(pool.sources), dtype=np.int64) for key, pool in self._pools.items()}

    def chosen(self) -> dict[NodeFetch, list[_Source]]:
        """Return the sources of each fetch, best first: first one for each in order, then more as far as possible."""
        chosen: dict[NodeFetch, list[int]] = {fetch: [] for fetch in self._fetches}
        for _ in range(MOST_SOURCES):
            for fetch, taken in chosen.items():
                self._add_best(fetch, taken)
        return {fetch: [self._pools[fetch.artifact].sources[number] for number in taken] or self._later(fetch)
                for fetch, taken in chosen.items()}

    def _add_best(self, fetch: NodeFetch, taken: list[int]) -> None:
        pool, planned = self._pools[fetch.artifact], self._planned[fetch.artifact]
        own = pool.on_node(fetch.node_id)
        possible = _fitting(fetch, pool) & (own | (planned < MOST_FETCHES))
        possible[taken] = False
        if possible.any():
            best = self._best(fetch, possible)
            planned[best] += not own[best]
            taken.append(best)

    def _later(self, fetch: NodeFetch) -> list[_Source]:
        """Return the sources of a fetch for which none has a free place in the first wave, earliest wave first."""
        pool, planned = self._pools[fetch.artifact], self._planned[fetch.artifact]
        possible, chosen, waves = _fitting(fetch, pool), list[int](), np.searchsorted(FULL_WAVES, planned, "right") + 1
        while len(chosen) < MOST_SOURCES and possible.any():
            chosen.append(self._best(fetch, possible & (waves == waves[possible].min())))
            possible[chosen] = False
        wave = int(waves[chosen[0]]) if chosen else 0
        planned[chosen[:1]] += 1
        return [pool.sources[number]._replace(wave=wave) for number in chosen]

    def _best(self, fetch: NodeFetch, possible: Flags) -> int:
        """Return the nearest of the possible sources; of equally near ones, one with the same view and few fetches."""
        pool, node = self._pools[fetch.artifact], self._nodes.get(fetch.node_id)
        labels = node.labels if node else {}
        near = [pool.with_label(label, labels[label]) for label in fetch.near if label in labels]
        for better in (pool.on_node(fetch.node_id), *near, pool.with_view(fetch.view)):
            if (both := possible & better).any():
                possible = both
        numbers = np.flatnonzero(possible)
        return int(numbers[self._planned[fetch.artifact][numbers].argmin()])


def _fitting(fetch: NodeFetch, pool: _Pool) -> Flags:
    return pool.whole | pool.with_view(fetch.view)


def find_ready(inventory: Inventory) -> Ready:
    """Return the sources that are ready now."""
    nodes = {node.id: node for node in inventory.nodes}
    by_artifact = grouped((source.artifact, source) for source in _ready_sources(inventory))
    return Ready(nodes, {artifact: _Pool(sources, nodes) for artifact, sources in by_artifact.items()})


def _ready_sources(inventory: Inventory) -> Iterator[_Source]:
    dead, listed = dead_node_ids(inventory), {node.id for node in inventory.nodes}
    # WARM ones and those that are not ready serve their weights, too
    replicas = [replica for replica in inventory.replicas if replica.replica_id is not None
                and replica.state == "ALIVE" and not replica.draining and not is_lost(replica, dead)]
    replicas.sort(key=lambda replica: (replica.model, replica.replica_id or 0))
    members = [(replica, member) for replica in replicas for member in sorted(
        replica.members, key=lambda member: (member.group or "", member.copy_index, member.rank))]
    for replica, member in members:
        address = address_of(member.address)
        if member.weights and member.weights.port and address and member.node_id in listed:
            yield _Source(f"{replica.model}/{replica.replica_id}", member.node_id,
                          host_port(address, member.weights.port), member.weights.artifact,
                          member.weights.view, member.weights.whole or member.weights.view is None,
                          member.weights.bytes)
