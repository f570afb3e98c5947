"""Create one replica: re-check the plan against the cluster, then make one call. Kills only its own creation.

Ray picks the card by best fit when it grants a worker. If two different shares arrive in a different order than
planned, their cards may leave no room for a third. So on each node a claim waits until all earlier ones that are not
equal to it have their cards.

Ray does not say which of the actors that wait for a worker already hold their resources. But a grant shows on the node:
since the replica was created, the free amount has fallen by its claim, and neither a later replica of this run nor a
foreign actor explains that. If in doubt, the replica counts as granted: only one that holds nothing may be taken back.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Set, Tuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import cluster
from .cluster import SHARE, format_claim, member_options
from .gang import GangCoordinator
from .guarded import supervisor_source
from .messages import Action, Member, Replica
from .replica import ModelActor
from .report import Refused, actor_name, warm_name
from .run_messages import Plan
from .view import View
from .wire import in_parts

TARGET_REACHED = "TARGET_REACHED"
SPARE = 2
"""So Ray has the next one at hand when a worker is up."""


class CreatedHere(NamedTuple):
    """A replica that this run has created; an apply may take back nothing else.

    `free_before` = Ray's free resources on its nodes just before, by node id. `at_ms` = milliseconds since the epoch.
    """

    name: str
    handle: Any
    actor_id: str
    claim: str
    free_before: Mapping[str, cluster.Amounts]
    at_ms: int


def replica_of(plan: Plan, action: Action, logs: Mapping[str, str]) -> Replica:
    """Return the replica that an action creates, with its fleet, and the engine, log and supervisor of each member.

    `logs` maps `<action>|<group>|<copy>|<rank>` to the name of the log file.
    """
    spec, supervisor = plan.specs[action.spec_hash], supervisor_source()
    members = [member._replace(engine=spec.engine(member.group, member.rank), supervisor=supervisor,
                               log=logs[f"{action.id}|{member.group}|{member.copy}|{member.rank}"])
               for member in action.members]
    return Replica(action.id, action.model, action.replica_id, action.lifecycle, action.spec_hash, action.wanted,
                   members, action.op, action.engine_hash, plan.fleet.name, plan.fleet.namespace,
                   variant=action.variant)


def check(replica: Replica, not_counted: Set[int], view: View) -> None:
    """Re-check a planned replica against the cluster; raises Refused.

    Only a promotion may use the id of a WARM replica, which ends itself once the new one is ready.
    NODE_TAKEN may pass soon: Ray reports its free resources with a delay.
    """
    names = view.names()
    name, warm = actor_name(replica.model, replica.replica_id), warm_name(replica.model, replica.replica_id)
    for taken in (name,) if replica.op == "promote" else (name, warm):
        if taken in names:
            raise Refused("NAME_TAKEN", f"{taken} already exists")
    live = cluster.live_ids(replica.model, names, not_counted)
    if len(live) >= replica.wanted:
        raise Refused(TARGET_REACHED, f"{len(live)} of {replica.wanted} are already live")
    for node_id, node in {member.node_id: member.node for member in replica.members}.items():
        trouble = view.trouble(node_id)
        if trouble:
            raise Refused(trouble[0], f"{node}: {trouble[1]}")
    short = view.shortfalls(replica.members)
    if short:
        raise Refused("NODE_TAKEN", "; ".join(short))


@lru_cache(maxsize=None)
def remote_class(plain: type) -> Any:
    """Return the Ray class of a plain one, shared by all replicas: Ray packs and sends each new class again."""
    return ray.remote(plain)


def create(replica: Replica, view: View) -> CreatedHere:
    """Create the replica's detached actor; raises Refused if its name has been taken since the check, or Ray refuses.

    The name is unique: if two applies create the same replica, only one succeeds.
    """
    members = replica.members
    name = actor_name(replica.model, replica.replica_id)
    plain, options = ((ModelActor, member_options(members[0])) if len(members) == 1 else
                      (GangCoordinator, {"num_cpus": 0, "num_gpus": 0}))
    before, now_ms = {member.node_id: view.free(member.node_id) for member in members}, int(time.time() * 1000)
    try:
        handle = remote_class(plain).options(
            name=name,
            lifetime="detached",
            max_restarts=-1,  # the actor itself counts them, see budget.py
            scheduling_strategy=NodeAffinitySchedulingStrategy(members[0].node_id, soft=False),
            **options,
        ).remote(*in_parts(replica._replace(created_ms=now_ms)))
    except ValueError as error:
        if name in cluster.taken_names():
            raise Refused("NAME_TAKEN", f"{name} already exists") from None
        raise Refused("REFUSED_BY_RAY", str(error).splitlines()[0]) from None
    claim = "; ".join(f"{format_claim(member)} on {member.node}" for member in members)
    view.created(name, handle._actor_id.hex(), members)
    return CreatedHere(name, handle, handle._actor_id.hex(), claim, before, now_ms)


def take_back(created: CreatedHere) -> None:
    """Take back a replica that this run created and Ray gave no worker in time: none of its code has run."""
    ray.kill(created.handle, no_restart=True)


class Creating:
    """The replicas that wait for Ray: at most `most`, and on each node SPARE times what Ray starts there at once.

    More on a node would only wait longer, and start even if the run is stopped. `at_once` = how many workers Ray starts
    at a time, by node id.
    """

    def __init__(self, most: int) -> None:
        self.at_once: Mapping[str, int] = {}
        self._most = most
        self._waiting: Dict[str, str] = {}
        """By replica: the node on which its actor starts."""
        self._on: Dict[str, int] = {}

    def has_room(self, replica: Replica) -> bool:
        """Return whether one more may wait on the replica's node."""
        node_id = replica.members[0].node_id
        return (len(self._waiting) < self._most
                and self._on.get(node_id, 0) < SPARE * self.at_once.get(node_id, 1))

    def note(self, replica: Replica, *, is_waiting: bool) -> None:
        """Note whether a replica waits for Ray now."""
        if is_waiting and replica.id not in self._waiting:
            node_id = self._waiting[replica.id] = replica.members[0].node_id
            self._on[node_id] = self._on.get(node_id, 0) + 1
        elif not is_waiting and replica.id in self._waiting:
            self._on[self._waiting.pop(replica.id)] -= 1


class _EqualClaims(NamedTuple):
    """Replicas that follow each other on a node and claim the same of its cards. `before` = those before them."""

    claims: Set[Tuple[int, int]]
    before: Set[str]
    replicas: Set[str]


class CardTurns:
    """The earlier replicas that must get their cards before each replica, on nodes where cards are shared.

    Equal claims go together: in any order Ray gives the same cards the same loads.
    """

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._before: Dict[str, Set[str]] = {}
        self._done: Set[str] = set()
        fractional = {member.node_id for replica in replicas for member in replica.members if 0 < member.gpus < SHARE}
        last_on: Dict[str, _EqualClaims] = {}
        for replica in replicas:
            before = self._before[replica.id] = set()
            for node in {member.node_id for member in replica.members if member.gpus > 0} & fractional:
                claims = {(member.gpus, member.vram) for member in replica.members
                          if member.node_id == node and member.gpus > 0}
                group = last_on.get(node)
                if group is None or len(claims) > 1 or group.claims != claims:
                    group = last_on[node] = _EqualClaims(claims, group.replicas if group else set(), set())
                before.update(group.before)
                group.replicas.add(replica.id)

    def may_begin(self, replica_id: str) -> bool:
        """Return whether all replicas that must come before it have their cards, or never will."""
        return self._before[replica_id] <= self._done

    def done(self, replica_id: str) -> None:
        """Record that Ray has chosen this replica's cards, or never will."""
        self._done.add(replica_id)


class Grants:
    """The single-member replicas that this run has created on each node, in order. Ray itself shows a gang's grant."""

    def __init__(self) -> None:
        self._claims: Dict[str, List[Tuple[str, Mapping[str, float]]]] = {}
        """Actor id and claim of each replica, by node id."""
        self._placed: Set[str] = set()
        """Ids of the actors that have their worker."""

    def created(self, created: CreatedHere, member: Member) -> None:
        """Record a new single-member replica."""
        claim = cluster.claims_by_node([member])[member.node_id]
        self._claims.setdefault(member.node_id, []).append((created.actor_id, claim))

    def placed(self, created: CreatedHere) -> None:
        """Record that the replica has its worker."""
        self._placed.add(created.actor_id)

    def ended(self, created: CreatedHere) -> None:
        """Record that the replica is dead and holds nothing."""
        for node_id, claims in self._claims.items():
            self._claims[node_id] = [(actor_id, claim) for actor_id, claim in claims if actor_id != created.actor_id]

    def may_be_granted(self, created: CreatedHere, node_id: str) -> bool:
        """Return whether what the node is short of has fallen as if Ray had granted the replica's claim.

        Of anything else, something that has ended may have given back as much.
        """
        ids, claims = zip(*self._claims[node_id])
        position = ids.index(created.actor_id)
        now = cluster.free_by_node().get(node_id, {})
        foreign = cluster.started_since(node_id, created.at_ms, exclude=ids)
        granted_since = [claims[later] for later in range(position + 1, len(ids)) if ids[later] in self._placed]
        for resource, amount in claims[position].items():
            free = now.get(resource, 0.0)
            decrease = created.free_before[node_id].get(resource, 0.0) - free
            explained = foreign.get(resource, 0.0) + sum(claim.get(resource, 0.0) for claim in granted_since)
            if free + cluster.SLACK < amount and decrease - explained + cluster.SLACK < amount:
                return False
        return True
