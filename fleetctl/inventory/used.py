"""What is in use on each node: live actors outside placement groups, bundles inside, and what is still on its way.

A replica that is starting counts where it was planned, so that the next plan does not promise the same room twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from fleetctl.documents.inventory import ReplicaMember
from fleetctl.inventory.actors import LiveActor
from fleetctl.inventory.claims import Claim
from fleetctl.inventory.placement_groups import PlacementGroup
from fleetctl.inventory.replicas import FoundReplica


def used_by_node(actors: Sequence[LiveActor], groups: Sequence[PlacementGroup],
                 replicas: Sequence[FoundReplica]) -> Mapping[str, Claim]:
    """Return what each node id has granted, or will have once what is starting has started.

    A gang's members live in a placement group named like its coordinator. Until that group is granted whole, its
    planned members count instead of its bundles.
    """
    granted = {group.name for group in groups if group.created}
    gangs_on_their_way = {one.actor.name: one for one in replicas
                          if len(one.planned) > 1 and one.actor.name not in granted}
    planned_node = {one.actor.actor_id: one.planned[0].node_id for one in replicas if len(one.planned) == 1}

    used: defaultdict[str, Claim] = defaultdict(Claim)
    for actor in actors:
        node_id = actor.node_id or planned_node.get(actor.actor_id)
        if node_id and actor.placement_group_id is None:
            used[node_id] += actor.claim
    for group in groups:
        if group.name not in gangs_on_their_way:
            for node_id, claim in group.held:
                used[node_id] += claim
    for gang in gangs_on_their_way.values():
        for member in gang.planned:
            if member.node_id:
                used[member.node_id] += _planned_claim(member)
    return dict(used)


def _planned_claim(member: ReplicaMember) -> Claim:
    return Claim(member.gpus, member.cpus, member.memory)
