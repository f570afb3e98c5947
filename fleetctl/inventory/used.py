"""What is in use on each node: Ray's own sum, and at least what is listed there or still on its way.

Ray counts everything, tasks too, but it is some seconds behind, and what waits for a worker is not in it. A replica
that is starting counts where it was planned, so that the next plan does not promise the same room twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

from fleetctl.documents.inventory import ReplicaMember, is_lost
from fleetctl.inventory.actors import LiveActor
from fleetctl.inventory.claims import Claim
from fleetctl.inventory.placement_groups import PlacementGroup
from fleetctl.inventory.replicas import FoundReplica


def listed_by_node(actors: Sequence[LiveActor], replicas: Sequence[FoundReplica], dead: Set[str],
                   groups: Sequence[PlacementGroup] = ()) -> Mapping[str, Claim]:
    """Return what each node id has granted as far as lists tell, or will have once what is starting has started.

    Actors count where they are, and our gangs by their members, whose placement group they hold. A replica with a node
    among the `dead` ones holds nothing elsewhere: a gang is pinned, and cannot come up again. `groups` are the
    placement groups of others, where Ray gives no sums; those of our gangs are left out.
    """
    members_of = {one.actor.actor_id: one.replica.members for one in replicas}
    used: defaultdict[str, Claim] = defaultdict(Claim)
    for actor in actors:
        planned = members_of.get(actor.actor_id, ())
        if len(planned) > 1 or actor.placement_group_id is not None:
            continue
        node_id = actor.node_id or next((member.node_id for member in planned), None)
        if node_id:
            used[node_id] += actor.claim
    for gang in replicas:
        if len(gang.replica.members) > 1 and not is_lost(gang.replica, dead):
            for member in gang.replica.members:
                if member.node_id:
                    used[member.node_id] += _claim_of(member)
    gangs = {one.actor.name for one in replicas if len(one.replica.members) > 1}
    for group in groups:
        for node_id, claim in group.held if group.name not in gangs else ():
            used[node_id] += claim
    return dict(used)


def _claim_of(member: ReplicaMember) -> Claim:
    return Claim(member.gpus, member.cpus, member.memory)
