"""From live actors to replicas: whose they are, what they claim, where their members stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.documents.inventory import Replica, ReplicaMember
from fleetctl.inventory.actors import LiveActor
from fleetctl.inventory.marks import Marks, read_marks
from fleetctl.inventory.names import ReplicaName, parse_actor_name


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """A replica together with the actor it was read from, and what could not be read of it.

    `planned` are the members its creator planned, empty where unknown.
    """

    replica: Replica
    actor: LiveActor
    planned: tuple[ReplicaMember, ...] = ()
    problems: tuple[str, ...] = ()
    hidden: bool = False


def find_replicas(actors: Sequence[LiveActor], namespace: str) -> list[FoundReplica]:
    """Return the replicas among `actors`, ordered by model, id and name.

    Only in `namespace` can a replica be ours; elsewhere, and under foreign schemes, it is capacity in use. What it says
    of its members is believed everywhere: where it stands, or will stand, is no question of whose it is.
    """
    found = []
    for actor in actors:
        name = parse_actor_name(actor.name) if actor.name else None
        if name is not None:
            found.append(_replica(actor, name, ours=actor.namespace == namespace and name.replica_id is not None))
    return sorted(found, key=lambda one: (one.replica.model, one.replica.replica_id is None,
                                          one.replica.replica_id or 0, one.actor.name, one.actor.actor_id))


def _replica(actor: LiveActor, name: ReplicaName, *, ours: bool) -> FoundReplica:
    marks = read_marks(actor.environment, actor.repr_name)
    replica = Replica(
        model=name.model,
        replica_id=name.replica_id if ours else None,
        foreign_id=None if ours else actor.name,
        state=actor.state,
        fleet=marks.fleet if ours else None,
        spec_hash=marks.spec_hash if ours else None,
        actor_id=actor.actor_id,
        restarts=actor.restarts,
        members=list(_members(actor, marks)),
        error=_error(actor),
    )
    return FoundReplica(replica, actor, marks.planned, marks.problems, marks.hidden)


def _members(actor: LiveActor, marks: Marks) -> tuple[ReplicaMember, ...]:
    """Planned members say what is claimed; reported ones, as long as the actor runs, where exactly it is."""
    reported = marks.reported if actor.state == "ALIVE" else ()  # a repr read while restarting is of the last life
    if not marks.planned:
        return tuple(_from_actor(actor, member) for member in reported) if len(reported) == 1 else (
            reported or (_from_actor(actor, ReplicaMember()),))
    if len(marks.planned) == 1 and not reported and actor.node_id:
        return (marks.planned[0].model_copy(update={"node_id": actor.node_id}),)
    places = {(member.group, member.copy_index, member.rank): member for member in reported}
    return tuple(_placed(planned, places.get((planned.group, planned.copy_index, planned.rank)))
                 for planned in marks.planned)


def _from_actor(actor: LiveActor, member: ReplicaMember) -> ReplicaMember:
    """Fill a single member with what Ray itself knows of its actor."""
    return member.model_copy(update={
        "node_id": member.node_id or actor.node_id, "gpus": actor.claim.gpus,
        "cpus": actor.claim.cpus, "memory": actor.claim.memory,
    })


def _placed(planned: ReplicaMember, reported: ReplicaMember | None) -> ReplicaMember:
    if reported is None:
        return planned
    return planned.model_copy(update={
        "node_id": reported.node_id or planned.node_id, "address": reported.address, "port": reported.port,
        "gpu_indices": reported.gpu_indices, "gpu_uuids": reported.gpu_uuids,
    })


def _error(actor: LiveActor) -> str | None:
    """Say what went wrong with an actor that is live but not up."""
    if actor.last_words:
        return actor.last_words
    if actor.state == "RESTARTING":
        return f"it ended and is being restarted (restart {max(actor.restarts, 1)})"
    return None
