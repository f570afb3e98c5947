"""Outcomes of updates in place: which replicas have reloaded other weights since they started, and which failed.

Ray keeps a replica's repr as it was when its actor started. So the agent notes each reload in the metadata of its job;
the newest note about an actor counts. A replica that Ray restarts loads the same weights again, and its repr says so.
If engines were asked to reload and no success is noted, the spec is unknown: the replica is outdated for any file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from pydantic import Field, ValidationError

from fleetctl.documents.base import Moment, Stored, as_datetime
from fleetctl.documents.inventory import RELOAD_ENDED, UNKNOWN_SPEC, Failure, Replica
from fleetctl.documents.weights import ServedWeights
from fleetctl.inventory.jobs import Job, noted_list
from fleetctl.inventory.marks import are_plausible

RELOADS = "reloads"
"""The metadata key under which a job's agent notes reloads; see agent/reloads.py."""


class ReloadNote(Stored):
    """One reload; it failed if it has a `code`. `weights` = the weights that each member serves, in order.

    `asked` = engines were asked to reload, or are about to be, and may or may not have loaded the weights.
    """

    model: str
    replica_id: int
    actor_id: str
    spec_hash: str
    at: Moment
    node_ids: list[str] = Field(default_factory=list)
    restarts: int = 0
    weights: list[ServedWeights | None] = Field(default_factory=list)
    asked: bool = False
    code: str | None = None
    message: str = ""

    @property
    def spec(self) -> tuple[str, str]:
        """Return the loaded spec: a model's key and a spec hash."""
        return self.model, self.spec_hash


def with_reloads(replicas: Sequence[Replica], jobs: Sequence[Job]) -> list[Replica]:
    """Return the replicas with the spec and the weights that they have reloaded; `jobs` from oldest to newest."""
    newest = dict[str, ReloadNote]()
    for _, note in reload_notes(jobs):
        former = newest.get(note.actor_id)
        if (note.asked or note.code is None) and (former is None or as_datetime(former.at) <= as_datetime(note.at)):
            newest[note.actor_id] = note
    return [_reloaded(replica, newest[replica.actor_id]) if replica.actor_id in newest else replica
            for replica in replicas]


def failed_reloads(jobs: Sequence[Job], namespace: str) -> list[Failure]:
    """Return the failed reloads in `namespace`, oldest first.

    An engine's end no longer counts once a replica has loaded the same spec in place.
    """
    ours = [(job, note, as_datetime(note.at)) for job, note in reload_notes(jobs)
            if job.metadata.get("namespace") == namespace]
    loaded = {note.spec: at for _, note, at in sorted(ours, key=itemgetter(2)) if note.code is None and not note.asked}
    return [Failure(**note.model_dump(exclude={"weights", "asked"}), fleet=job.metadata.get("fleet"), reload=True)
            for job, note, at in ours
            if note.code and (note.code != RELOAD_ENDED or at >= loaded.get(note.spec, at))]


def _reloaded(replica: Replica, note: ReloadNote) -> Replica:
    if replica.state != "ALIVE":  # its repr is from before the restart
        return replica.model_copy(update={"spec_hash": None if note.asked else note.spec_hash})
    if replica.restarts == note.restarts and note.asked:
        return replica.model_copy(update={"spec_hash": UNKNOWN_SPEC})
    if replica.restarts != note.restarts or len(replica.members) != len(note.weights):
        return replica
    members = [member.model_copy(update={"weights": weights})
               for member, weights in zip(replica.members, note.weights, strict=True)]
    return replica.model_copy(update={"spec_hash": note.spec_hash, "ready_at": note.at, "members": members})


def reload_notes(jobs: Sequence[Job]) -> Iterator[tuple[Job, ReloadNote]]:
    """Yield the notes of all jobs that can be read, each with its job."""
    for job in jobs:
        for row in noted_list(job.metadata, RELOADS):
            try:
                note = ReloadNote.model_validate(row)
            except ValidationError:  # written by another release
                continue
            if all(map(are_plausible, note.weights)):
                yield job, note
