"""The use of each node according to the lists, starting replicas included. Ray's own sums are in claims.py.

Ray's sums cover everything, tasks too, but lag some seconds and omit actors that wait for a worker. A starting replica
counts on its planned node, so that the next plan does not use the same room twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from fleetctl.documents.inventory import is_lost
from fleetctl.inventory.actors import Listing, LiveActor, Row, list_rows
from fleetctl.inventory.claims import Claim, read_claim
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.json_values import list_of, object_of, text_of
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
