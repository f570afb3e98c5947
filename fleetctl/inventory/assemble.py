"""Combines the parts of one reading into nodes with cards and use, and reports where the parts disagree.

The use of a node is Ray's own sum (claims.py), and that of the lists. Ray's sums cover everything, tasks too, but lag
some seconds and omit actors that wait for a worker. A starting replica counts on its planned node, so that the next
plan does not use the same room twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from fleetctl.documents.inventory import Amounts, Gpu, Node, NodeResources, NodeState, ReplicaMember, is_lost
from fleetctl.documents.selector import ACCELERATOR_LABEL
from fleetctl.inventory.actors import MEMBER_CLASS, Listing, LiveActor, Row, list_rows
from fleetctl.inventory.cards import (
    Workers,
    card_warnings,
    granted_by_card,
    read_cards,
    reports_its_cards,
    with_foreign_memory,
    with_shares,
    with_unreported,
)
from fleetctl.inventory.claims import Claim, RaySum, claim_of_amounts, odd_amounts, read_claim
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.json_values import list_of, moment_of_ms, object_of, text_of, whole_of
from fleetctl.inventory.marks import refused_claims
from fleetctl.inventory.replicas import FoundReplica


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """One placement group that is not removed. `held` has one entry per bundle that is placed on a node."""

    name: str
    held: tuple[tuple[str, Claim], ...]
    group_id: str = ""


def list_placement_groups(client: DashboardClient) -> Listing[PlacementGroup]:
    """Return the groups that are placed or pending.

    Ray's list has up to 10,000 groups, removed ones included, so the inventory reads it only if Ray gives no sums.
    """
    return list_rows(client, "placement_groups", read_placement_group, filters=[("state", "!=", "REMOVED")])


def read_placement_group(row: Row) -> PlacementGroup | None:
    """Return the group of one row, or None if it is removed."""
    return None if row.get("state") == "REMOVED" else PlacementGroup(
        str(row.get("name") or ""), tuple(_held(row)), text_of(row.get("placement_group_id")) or "")


def _held(row: Row) -> Iterator[tuple[str, Claim]]:
    for bundle in map(object_of, list_of(row.get("bundles"))):
        if node_id := text_of(bundle.get("node_id")):
            yield node_id, read_claim(bundle.get("unit_resources"))


def listed_by_node(actors: Sequence[LiveActor], replicas: Sequence[FoundReplica], dead: Set[str],
                   groups: Sequence[PlacementGroup] = ()) -> Mapping[str, Claim]:
    """Return the claims on each node, by node id, according to the lists, starting replicas included.

    Actors count on their nodes, and our gangs by their members, which hold the gang's placement group. A gang with a
    member on one of the `dead` nodes holds nothing elsewhere: it is pinned and cannot start again. `groups` are all
    placement groups, if Ray gives no sums; our gangs' groups are left out. WARM replicas count as plain actors.
    """
    hot = [item for item in replicas if item.replica.level == "HOT"]
    members_of = {item.actor.actor_id: item.replica.members for item in hot}
    used: defaultdict[str, Claim] = defaultdict(Claim)
    for actor in actors:
        planned = members_of.get(actor.actor_id, ())
        if len(planned) > 1 or actor.placement_group_id is not None:
            continue
        node_id = actor.node_id or next((member.node_id for member in planned), None)
        if node_id:
            used[node_id] += actor.claim
    for gang in hot:
        if len(gang.replica.members) > 1 and not is_lost(gang.replica, dead):
            for member in gang.replica.members:
                if member.node_id:
                    used[member.node_id] += Claim(member.gpus, member.cpus, member.memory)
    gangs = {item.actor.name for item in hot if len(item.replica.members) > 1}
    for group in groups:
        for node_id, claim in group.held if group.name not in gangs else ():
            used[node_id] += claim
    return dict(used)


NAME_LABEL = "fleet.io/node"
"""The label that names a node when its host name and IP are ambiguous, as with several Ray nodes on one machine."""

_STATES: Mapping[str, NodeState] = {"ALIVE": "ALIVE", "DEAD": "DEAD"}
NO_ACTOR = "f" * 32
"""The actor id in the statistics of a worker that runs a task."""


def read_node(row: Row, record: Mapping[str, Any]) -> Node | None:
    """Return the node of one row, its name not yet unique; `record` is the dashboard's own record, or empty.

    `record` shows a drain only if the dashboard started after it; otherwise only an agent sees it. A state other than
    ALIVE and DEAD also counts as draining: such a node offers nothing, and its replicas are not lost. Nor does one
    offer anything whose amounts no node can have.
    """
    node_id = text_of(row.get("node_id"))
    if node_id is None:
        return None
    drains = object_of(record.get("stateSnapshot")).get("state") == "DRAINING" and row.get("state") == "ALIVE"
    return Node(
        id=node_id,
        name=_name(row, record),
        ip=text_of(row.get("node_ip")),
        state="DRAINING" if drains else _STATES.get(str(row.get("state")), "DRAINING"),
        labels={str(key): str(value) for key, value in object_of(row.get("labels")).items()},
        resources=NodeResources(total=Amounts() if odd_amounts(row.get("resources_total")) else
                                read_claim(row.get("resources_total")).as_amounts()),
        started_at=moment_of_ms(row.get("start_time_ms")))


def _name(row: Row, record: Mapping[str, Any]) -> str:
    """Return the node's label, else the name given to Ray, else its host name, else its IP."""
    label = text_of(object_of(row.get("labels")).get(NAME_LABEL))
    given, ip = text_of(row.get("node_name")), text_of(row.get("node_ip"))
    own = given if given != ip else None
    return label or own or text_of(record.get("nodeManagerHostname")) or ip or str(row["node_id"])


def nodes_left_out(rows: Sequence[Row], names: Mapping[str, str]) -> Iterator[str]:
    """Name the nodes that offer nothing because Ray lists amounts for them that no node can have."""
    for row in rows:
        odd = odd_amounts(row.get("resources_total")) if row.get("state") != "DEAD" else []
        if odd:
            yield (f"Ray says that {names.get(str(row.get('node_id')))} has {', '.join(odd)}, which no node has: it is "
                   "left out, and gets no new replicas")


def unique_names(nodes: Sequence[Node]) -> dict[str, str]:
    """Return node id -> name. Nodes with the same name get the start of their id; a live node ignores dead ones."""
    live = Counter(node.name for node in nodes if node.state != "DEAD")
    dead = Counter(node.name for node in nodes if node.state == "DEAD")
    names = {}
    for node in nodes:
        others = live[node.name] - 1 if node.state != "DEAD" else live[node.name] + dead[node.name] - 1
        names[node.id] = f"{node.name}-{node.id[:6]}" if others else node.name
    return names


@dataclass(frozen=True, slots=True)
class Parts:
    """One reading, parsed. `summary` is the dashboard's node summary and `sums` Ray's grants, both by node id.

    `groups` are read only if Ray gives no sums.
    """

    nodes: Sequence[Node]
    actors: Sequence[LiveActor]
    replicas: Sequence[FoundReplica]
    summary: Mapping[str, Mapping[str, Any]]
    sums: Mapping[str, RaySum]
    groups: Sequence[PlacementGroup] = ()
    memory_by_process: bool = True
    """Whether this version of Ray reports a process's card memory in MiB; some report a percentage instead."""


def build_nodes(parts: Parts) -> list[Node]:
    """Return the nodes of the inventory document, ordered by name; dead ones are kept, to show lost replicas."""
    names = unique_names(parts.nodes)
    dead = {node.id for node in parts.nodes if node.state == "DEAD"}
    listed = listed_by_node(parts.actors, parts.replicas, dead, parts.groups)
    members = _members_by_node(parts.replicas, dead)
    by_slot, classes = _known_by_slot_only(parts), {actor.actor_id: actor.class_name for actor in parts.actors}
    nodes = []
    for node in parts.nodes:
        claim = listed.get(node.id, Claim())
        ray_sum = parts.sums.get(node.id)
        used = claim if ray_sum is None else ray_sum.at_least(claim)
        found = node.model_copy(update={
            "name": names[node.id],
            "resources": NodeResources(total=node.resources.total, used=used.as_amounts(),
                                       listed=None if used == claim else claim.as_amounts()),
            "gpus": _cards(parts, node, members.get(node.id, ()), by_slot, classes, used.gpus)})
        nodes.append(with_foreign_memory(found, members.get(node.id, ())))
    return sorted(with_unreported(nodes), key=lambda node: (node.name, node.id))


def _members_by_node(replicas: Sequence[FoundReplica], dead: Set[str]) -> Mapping[str, Sequence[ReplicaMember]]:
    members: defaultdict[str, list[ReplicaMember]] = defaultdict(list)
    for found in replicas:
        for member in () if is_lost(found.replica, dead) else found.replica.members:
            if member.node_id:
                members[member.node_id].append(member)
    return members


def _known_by_slot_only(parts: Parts) -> frozenset[str]:
    """Return the actors whose cards no replica reports, and NO_ACTOR; a gang reports the cards of its members."""
    reporting = {found.actor.actor_id for found in parts.replicas if reports_its_cards(found.replica)}
    silent = {member.node_id for found in parts.replicas if len(found.replica.members) > 1
              and found.actor.actor_id not in reporting for member in found.replica.members}
    return frozenset({NO_ACTOR, *(
        actor.actor_id for actor in parts.actors if actor.actor_id not in reporting
        and (actor.class_name != MEMBER_CLASS or actor.node_id in silent))})


def _cards(parts: Parts, node: Node, members: Sequence[ReplicaMember], by_slot: frozenset[str],
           classes: Mapping[str, str], used_gpus: int) -> list[Gpu]:
    if node.state == "DEAD":
        return []
    entry, declared = parts.summary.get(node.id, {}), claim_of_amounts(node.resources.total).gpus
    workers = list_of(object_of(entry.get("raylet")).get("coreWorkersStats"))
    cards = read_cards(entry, declared, node.labels.get(ACCELERATOR_LABEL, ""), _workers(classes, workers),
                       memory_by_process=parts.memory_by_process)
    granted = granted_by_card(cards, members, workers, declared_gpus=declared, live_actors=by_slot)
    return with_shares(cards, granted, used_gpus)


def _workers(classes: Mapping[str, str], workers: Sequence[Any]) -> Workers:
    """Return the process titles of the actors on a node, by pid; `classes` = those of all actors, by id."""
    return {pid: f"ray::{name}" for worker in map(object_of, workers)
            if (pid := whole_of(worker.get("pid"))) is not None and (name := classes.get(str(worker.get("actorId"))))}


def contradictions(parts: Parts) -> Iterator[str]:
    """Name nodes that are certainly alive but missing from the list of nodes, which is then incomplete.

    An ALIVE actor is proof: Ray ends or restarts the actors of a dead node before it forgets the node.
    """
    known = {node.id for node in parts.nodes}
    if not known:
        return  # _unusable in dashboard.py names an empty list
    for node_id in sorted(parts.summary.keys() - known):
        if parts.summary[node_id]["raylet"].get("state") == "ALIVE":
            yield f"node {node_id} is alive in the dashboard's node summary but not in the cluster's list of nodes"
    in_use = {actor.node_id for actor in parts.actors if actor.node_id and actor.state == "ALIVE"}
    for node_id in sorted(in_use - known):
        yield f"actors run on node {node_id}, which is not in the cluster's list of nodes"


def consistency_warnings(parts: Parts, nodes: Sequence[Node]) -> list[str]:
    """Return the warnings that leave the reading complete; `nodes` were built from the parts."""
    alive = [node for node in nodes if node.state != "DEAD"]
    refused = refused_claims(found.replica for found in parts.replicas)
    return [*refused, *_nodes_not_listed(parts), *_missing_cards(parts), *card_warnings(alive)]


def _nodes_not_listed(parts: Parts) -> Iterator[str]:
    """Name replicas that are not up and planned on a node that Ray does not list, perhaps one that died long ago."""
    known = {node.id for node in parts.nodes}
    for found in parts.replicas if known else ():
        if found.actor.state == "ALIVE":
            continue
        for node_id in sorted({member.node_id for member in found.replica.members if member.node_id} - known):
            advice = "; if that node is permanently gone, evict the replica" if found.replica.fleet else ""
            yield (f"replica {found.actor.name} is {found.actor.state} and planned on node {node_id}, which the "
                   f"cluster does not list: it still counts{advice}")


def _missing_cards(parts: Parts) -> Iterator[str]:
    names = unique_names(parts.nodes)
    for node in parts.nodes:
        if node.state != "DEAD" and parts.summary and node.id not in parts.summary:
            yield f"{names[node.id]} is not in the dashboard's node summary: its cards are unknown"
