"""Outcomes of updates in place: which replicas have reloaded other weights since they started, and which failed.

Ray keeps a replica's repr as it was when its actor started. So the agent records each reload, by actor and run; the
newest record about an actor counts. A replica that Ray restarts loads the same weights again, and its repr says so.
If engines were asked to reload and no success is recorded, the spec is unknown: the replica is outdated for any file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter

from pydantic import Field, ValidationError

from fleetctl.documents.base import Moment, Stored, as_datetime
from fleetctl.documents.inventory import RELOAD_ENDED, UNKNOWN_SPEC, Failure, Replica
from fleetctl.documents.weights import ServedWeights
from fleetctl.inventory.marks import are_plausible
from fleetctl.inventory.records import RELOAD, Records


class ReloadRecord(Stored):
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
    fleet: str | None = None
    namespace: str | None = None

    @property
    def spec(self) -> tuple[str, str]:
        """Return the loaded spec: a model's key and a spec hash."""
        return self.model, self.spec_hash


def with_reloads(replicas: Sequence[Replica], records: Records) -> list[Replica]:
    """Return the replicas with the spec and the weights that they have reloaded."""
    newest = dict[str, ReloadRecord]()
    for reload in reloads_in(records):
        former = newest.get(reload.actor_id)
        is_newer = former is None or as_datetime(former.at) <= as_datetime(reload.at)
        if is_newer and (reload.asked or reload.code is None):
            newest[reload.actor_id] = reload
    return [_reloaded(replica, newest[replica.actor_id]) if replica.actor_id in newest else replica
            for replica in replicas]


def failed_reloads(records: Records, namespace: str) -> list[Failure]:
    """Return the failed reloads in `namespace`, oldest first.

    An engine's end no longer counts once a replica has loaded the same spec in place.
    """
    ours = [(reload, as_datetime(reload.at)) for reload in reloads_in(records) if reload.namespace == namespace]
    loaded = {reload.spec: at for reload, at in sorted(ours, key=itemgetter(1))
              if reload.code is None and not reload.asked}
    return [Failure(**reload.model_dump(exclude={"weights", "asked", "namespace"}), reload=True) for reload, at in ours
            if reload.code and (reload.code != RELOAD_ENDED or at >= loaded.get(reload.spec, at))]


def _reloaded(replica: Replica, reload: ReloadRecord) -> Replica:
    if replica.state != "ALIVE":  # its repr is from before the restart
        return replica.model_copy(update={"spec_hash": None if reload.asked else reload.spec_hash})
    if replica.restarts == reload.restarts and reload.asked:
        return replica.model_copy(update={"spec_hash": UNKNOWN_SPEC})
    if replica.restarts != reload.restarts or len(replica.members) != len(reload.weights):
        return replica
    members = [member.model_copy(update={"weights": weights})
               for member, weights in zip(replica.members, reload.weights, strict=True)]
    return replica.model_copy(update={"spec_hash": reload.spec_hash, "ready_at": reload.at, "members": members})


def reloads_in(records: Records) -> list[ReloadRecord]:
    """Return the recorded reloads, oldest first, without those that cannot be read."""
    reloads = list[ReloadRecord]()
    for record in records.of(RELOAD):
        with suppress(ValidationError):  # written by another release
            reloads.append(ReloadRecord.model_validate(record.payload))
    return [reload for reload in reloads if all(map(are_plausible, reload.weights))]
