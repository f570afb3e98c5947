"""What is in use on each node: live actors outside placement groups, bundles inside, and what is still on its way.

A replica that is starting counts where it was planned, so that the next plan does not promise the same room twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from fleetctl.documents.inventory import ReplicaMember
from fleetctl.inventory.actors import LiveActor
from fleetctl.inventory.claims import Claim
from fleetctl.inventory.placement_groups import PlacementGroup
from fleetctl.inventory.replicas import FoundReplica


def used_by_node(actors: Sequence[LiveActor], groups: Sequence[PlacementGroup],
                 replicas: Sequence[FoundReplica]) -> Mapping[str, Claim]:
    """Return what each node id has granted, or will have once what is starting has started.

    A gang's members live in a placement group of its own. Until that group is granted whole, its planned members count
    instead of its bundles.
    """
    own = groups_of_gangs(replicas, groups)
    on_their_way = [one for one in replicas if len(one.planned) > 1
                    and not ((group := own.get(one.actor.actor_id)) and group.created)]
    counted_by_plan = {own[one.actor.actor_id].group_id for one in on_their_way if one.actor.actor_id in own}
    planned_node = {one.actor.actor_id: one.planned[0].node_id for one in replicas if len(one.planned) == 1}

    used: defaultdict[str, Claim] = defaultdict(Claim)
    for actor in actors:
        node_id = actor.node_id or planned_node.get(actor.actor_id)
        if node_id and actor.placement_group_id is None:
            used[node_id] += actor.claim
    for group in groups:
        if group.group_id not in counted_by_plan:
            for node_id, claim in group.held:
                used[node_id] += claim
    for member in (member for gang in on_their_way for member in gang.planned):
        if member.node_id:
            used[member.node_id] += _planned_claim(member)
    return dict(used)


def groups_of_gangs(replicas: Sequence[FoundReplica], groups: Sequence[PlacementGroup]) -> Mapping[str, PlacementGroup]:
    """Return each gang's placement group by the actor id of its coordinator; a gang that has none yet is left out.

    A gang's group is named like its coordinator, but Ray's list does not say in which namespace, so the nodes of its
    bundles must be planned ones too; and a group is the group of one gang only.
    """
    own: dict[str, PlacementGroup] = {}
    free = sorted(groups, key=lambda group: (not group.created, group.group_id))
    for gang in replicas:
        planned = Counter(member.node_id for member in gang.planned)
        for group in free if len(gang.planned) > 1 else ():
            if group.name == gang.actor.name and _stands_on(group, planned):
                own[gang.actor.actor_id] = group
                free.remove(group)
                break
    return own


def _stands_on(group: PlacementGroup, planned: Counter[str | None]) -> bool:
    held = Counter[str | None](node_id for node_id, _ in group.held)
    return held == planned if group.created else held <= planned


def _planned_claim(member: ReplicaMember) -> Claim:
    return Claim(member.gpus, member.cpus, member.memory)
