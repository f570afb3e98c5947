"""Put the parts of one reading together: nodes with their cards and what is used on them, and where parts disagree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.documents.inventory import Gpu, Node, NodeResources
from fleetctl.inventory.actors import LiveActor
from fleetctl.inventory.cards import card_warnings, read_cards
from fleetctl.inventory.claims import Claim
from fleetctl.inventory.nodes import FoundNode, unique_names
from fleetctl.inventory.placement_groups import PlacementGroup
from fleetctl.inventory.replicas import FoundReplica
from fleetctl.inventory.shares import granted_by_card, reports_its_cards, with_shares
from fleetctl.inventory.used import used_by_node


@dataclass(frozen=True, slots=True)
class Parts:
    """One reading, parsed. `summary` is the dashboard's node summary by node id."""

    nodes: Sequence[FoundNode]
    actors: Sequence[LiveActor]
    groups: Sequence[PlacementGroup]
    replicas: Sequence[FoundReplica]
    summary: Mapping[str, Mapping[str, Any]]


def build_nodes(parts: Parts) -> list[Node]:
    """Return the nodes of the inventory document, ordered by name; dead ones are kept, to tell what is lost."""
    names = unique_names(parts.nodes)
    used = used_by_node(parts.actors, parts.groups, parts.replicas)
    nodes = [_node(parts, node, names[node.node_id], used.get(node.node_id, Claim())) for node in parts.nodes]
    return sorted(nodes, key=lambda node: (node.name, node.id))


def _node(parts: Parts, node: FoundNode, name: str, used: Claim) -> Node:
    return Node(
        id=node.node_id, name=name, ip=node.ip, state=node.state, labels=dict(node.labels),
        resources=NodeResources(total=node.total.as_amounts(), used=used.as_amounts()),
        gpus=_cards(parts, node, used.gpus) if node.state != "DEAD" else [],
    )


def _cards(parts: Parts, node: FoundNode, used_gpus: int) -> list[Gpu]:
    entry = parts.summary.get(node.node_id, {})
    cards = read_cards(entry, node.total.gpus)
    reporting = {found.actor.actor_id for found in parts.replicas if reports_its_cards(found.replica)}
    gangs = {found.actor.name for found in parts.replicas
             if found.actor.actor_id in reporting and len(found.planned) > 1}
    gang_groups = {group.group_id for group in parts.groups if group.name in gangs}
    by_slot = frozenset(actor.actor_id for actor in parts.actors
                        if actor.actor_id not in reporting and actor.placement_group_id not in gang_groups)
    raylet = entry.get("raylet")
    workers = raylet.get("coreWorkersStats") if isinstance(raylet, dict) else None
    granted = granted_by_card(node.node_id, cards, [found.replica for found in parts.replicas],
                              workers if isinstance(workers, list) else [], declared_gpus=node.total.gpus,
                              live_actors=by_slot)
    return with_shares(cards, granted, used_gpus)


def consistency_warnings(parts: Parts) -> list[str]:
    """Say where the parts disagree or cannot be read; none of this makes the reading incomplete."""
    return [*_unreadable_replicas(parts), *_missing_nodes(parts), *_card_warnings(parts)]


def _unreadable_replicas(parts: Parts) -> Iterator[str]:
    for found in parts.replicas:
        for problem in found.problems:
            yield f"replica {found.actor.name}: {problem}"


def _missing_nodes(parts: Parts) -> Iterator[str]:
    known = {node.node_id for node in parts.nodes}
    names = unique_names(parts.nodes)
    for node in parts.nodes:
        if node.state != "DEAD" and parts.summary and node.node_id not in parts.summary:
            yield f"{names[node.node_id]} is not in the dashboard's node summary: its cards are not known"
    for node_id in sorted(parts.summary.keys() - known):
        yield f"node {node_id} is in the dashboard's node summary but not in the cluster's list of nodes"
    for node_id in sorted({actor.node_id for actor in parts.actors if actor.node_id} - known):
        yield f"actors run on node {node_id}, which is not in the cluster's list of nodes"


def _card_warnings(parts: Parts) -> Iterator[str]:
    names = unique_names(parts.nodes)
    yield from card_warnings([
        (names[node.node_id], node.total.gpus, read_cards(parts.summary.get(node.node_id, {}), node.total.gpus))
        for node in parts.nodes if node.state != "DEAD"
    ])
