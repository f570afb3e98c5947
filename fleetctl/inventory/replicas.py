"""From live actors to replicas: their fleet, their claims, the nodes of their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleetctl.documents.base import is_model_key
from fleetctl.documents.inventory import Node, Replica, ReplicaMember, Start, Success, address_of
from fleetctl.documents.quantity import grouped
from fleetctl.inventory.actors import MEMBER_CLASSES, LiveActor
from fleetctl.inventory.failures import start_of, success_of
from fleetctl.inventory.jobs import Job
from fleetctl.inventory.json_values import moment_of
from fleetctl.inventory.marks import (
    Marks,
    ReplicaName,
    parse_actor_name,
    read_marks,
    with_true_addresses,
    without_place,
)
from fleetctl.inventory.records import Record

MOST_REASON = 300
"""Characters of what an actor says of its failing probe that are kept."""


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """A replica, and the actor it was read from."""

    replica: Replica
    actor: LiveActor
    earlier_tries: frozenset[str] = frozenset()
    success: Success | None = None
    """That the replica was ready before; only while it is down."""
    start: Start | None = None
    """How long it took to become ready, if it says so."""


def find_replicas(
    actors: Sequence[LiveActor], namespace: str, planned: Mapping[str, Marks], jobs: Sequence[Job] = (),
    nodes: Sequence[Node] = (),
) -> list[FoundReplica]:
    """Return the replicas among `actors`, ordered by model, id and name; `planned` by actor id.

    A replica can be ours only in `namespace`; in other namespaces, and under foreign naming schemes, it is capacity in
    use. A replica of an unknown namespace keeps its id, so that no other replica gets it. The members in a replica's
    repr count in every namespace; their addresses count only if Ray lists an actor of the replica on that node, for a
    gang one of the members that its job has created. `jobs` are our runs: the job that created a replica records the
    release.
    """
    replicas, versions = [], {job.driver_id: job.metadata.get("toolVersion") for job in jobs if job.driver_id}
    addresses = {node.id: address for node in nodes if (address := address_of(node.ip))}
    hosts = grouped((actor.job_id, actor.node_id) for actor in actors
                    if actor.class_name in MEMBER_CLASSES and actor.node_id and actor.state == "ALIVE")
    for actor in actors:
        name = parse_actor_name(actor.name) if actor.name else None
        if name is not None:
            plan = planned.get(actor.actor_id)
            marks = plan or read_marks(actor.repr_name)
            within = marks.namespace if actor.namespace is None else actor.namespace
            ours = name.replica_id is not None and within in (namespace, None)
            read = _replica(actor, name, marks, versions.get(actor.job_id), ours=ours,
                            constructed=not (plan and actor.state == "ALIVE"))
            of_members = hosts.get(actor.job_id, ()) if len(read.replica.members) > 1 else ()
            true = with_true_addresses(read.replica, addresses, {actor.node_id, *of_members} - {None})
            replicas.append(read if true is read.replica else replace(read, replica=true))
    return sorted(replicas, key=lambda item: (item.replica.model, item.replica.replica_id is None,
                                          item.replica.replica_id or 0, item.actor.name, item.actor.actor_id))


def _replica(
    actor: LiveActor, name: ReplicaName, marks: Marks, tool_version: str | None, *, ours: bool, constructed: bool
) -> FoundReplica:
    refused, fleet = list(marks.problems), marks.fleet
    if fleet and actor.namespace is not None and marks.namespace not in (None, actor.namespace):
        refused.append(f"its repr names the namespace {marks.namespace}, but it runs in {actor.namespace}")
        fleet = None
    if fleet and not is_model_key(name.model):
        refused.append("no fleet can have a model with its key")
        fleet = None
    elsewhere = [member.node_id for member in marks.members if member.node_id not in (None, actor.node_id)]
    if elsewhere and len(marks.members) == 1 and actor.state == "ALIVE" and constructed:
        refused.append(f"it says that it runs on node {elsewhere[0]}, but Ray lists it on {actor.node_id or 'none'}")
    replica = Replica(
        model=name.model,
        replica_id=name.replica_id if ours else None,
        foreign_id=None if ours else actor.name,
        level=name.level,
        state=actor.state,
        fleet=fleet if ours else None,
        spec_hash=marks.spec_hash if ours else None,
        variant=marks.variant if ours else None,
        engine_hash=marks.engine_hash if ours else None,
        actor_id=actor.actor_id,
        restarts=actor.restarts,
        ready_at=marks.ready_at if actor.state == "ALIVE" and name.level == "HOT" else None,
        restart_max=marks.restart_max if ours else None,
        restarts_used=None if marks.uncounted is None or not ours else max(0, actor.restarts - marks.uncounted),
        since=marks.begun if actor.state != "ALIVE" else None,
        members=list(_members(actor, marks)),
        constructed=constructed,
        error=actor.error,
        tool_version=tool_version if ours else None,
        refused=refused)
    success = success_of(name.model, marks, actor.restarts) if ours and actor.state == "RESTARTING" else None
    return FoundReplica(replica, actor, marks.earlier_tries, success, start_of(name.model, marks) if ours else None)


def with_readiness(found: Sequence[FoundReplica], records: Sequence[Record]) -> list[FoundReplica]:
    """Return the replicas; those that are up, and not ready by a record of this life of their actor, are marked."""
    by_actor = {record.subject: record.payload for record in records}
    return [_marked(one, by_actor[one.actor.actor_id]) if one.actor.actor_id in by_actor else one for one in found]


def _marked(found: FoundReplica, payload: Mapping[str, Any]) -> FoundReplica:
    since, replica = moment_of(payload.get("since")), found.replica
    if since is None or replica.ready_at is None or payload.get("readyAt") != replica.ready_at:
        return found
    told = str(payload.get("reason", ""))[:MOST_REASON]
    reason = "".join(character if character.isprintable() else " " for character in told)
    return replace(found, replica=replica.model_copy(update={"not_ready_since": since, "not_ready_reason": reason}))


def _members(actor: LiveActor, marks: Marks) -> tuple[ReplicaMember, ...]:
    """Return the members: from the replica's repr, from its plan, or from Ray's record of its one actor."""
    members = marks.members if actor.state == "ALIVE" else tuple(map(without_place, marks.members))
    return members if len(members) > 1 else (_from_actor(actor, members[0] if members else ReplicaMember()),)


def _from_actor(actor: LiveActor, member: ReplicaMember) -> ReplicaMember:
    """Complete a single member from Ray's own record of its actor."""
    return member.model_copy(update={
        "node_id": actor.node_id or member.node_id, "gpus": actor.claim.gpus,
        "cpus": actor.claim.cpus, "memory": actor.claim.memory,
    })
