"""The replicas that failed, from Ray's dead actors: when, where, with which spec, and why; and what succeeded since.

A replica says in its cause of death what the agent knows of it; of one that Ray or the kernel ended, Ray's time of its
death and the plan of the apply that created it say the rest. Evicted ones, and those whose node has gone, are no
failures: they were successes if they had become ready. What an older agent has written is read as far as it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from fleetctl.documents.base import as_datetime
from fleetctl.documents.inventory import Failure, Success
from fleetctl.errors import InventoryError
from fleetctl.inventory.actors import count_of, death_messages, packed_failure
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.json_values import moment_of, object_of, text_of, texts_of
from fleetctl.inventory.marks import Marks, parse_actor_name, read_marks
from fleetctl.inventory.state_api import Listing, Row, list_rows

CLASSES = ("ModelActor", "GangCoordinator")
"""The classes of our replicas; see agent/create.py."""
BY_ITSELF = ("creation_task_failure_context", "oom_context")
"""The kinds of death in which the actor ended by itself; a worker that died is the third, see `_failed`."""


class Silent(NamedTuple):
    """An actor that could not say when it ended."""

    actor_id: str
    name: str
    job_id: str
    repr_name: str


class Ended(NamedTuple):
    """What became of the replicas that are gone; failures in order of their actors' ids. `silent` are among these."""

    failures: Sequence[Failure] = ()
    successes: Sequence[Success] = ()
    silent: Sequence[Silent] = ()


def list_ended(client: DashboardClient, namespace: str) -> Ended:
    """Return what Ray remembers in `namespace`.

    What was created again on other cards has not failed by that: what became of the last try counts. Raises
    InventoryError also where the list is not whole: then it is not known what failed in a row.
    """
    found, tried_again, silent = list[Failure | Success](), set[str](), list[Silent]()
    for name in CLASSES:
        listing: Listing[Failure | Success] = list_rows(
            client, "actors", lambda row: _read(row, namespace, tried_again, silent),
            where=[("state", "=", "DEAD"), ("class_name", "=", name)])
        if listing.losses:
            raise InventoryError("; ".join(listing.losses))
        found.extend(listing.rows)
    failures = [one for one in found if isinstance(one, Failure) and one.actor_id not in tried_again]
    return Ended(sorted(failures, key=lambda one: one.actor_id or ""),
                 [one for one in found if isinstance(one, Success)], silent)


def that_matter(successes: Iterable[Success], failures: Sequence[Failure]) -> Iterator[Success]:
    """Yield the successes that come after a failure of their spec or their nodes."""
    first: dict[object, datetime] = {}
    for failure in failures:
        if failure.at:
            at = as_datetime(failure.at)
            for key in ((failure.model, failure.spec_hash), *failure.node_ids):
                first[key] = min(at, first.get(key, at))
    for success in successes:
        keys = ((success.model, success.spec_hash), *success.node_ids)
        if any(first[key] < as_datetime(success.at) for key in keys if key in first):
            yield success


def _read(row: Row, namespace: str, tried_again: set[str], silent: list[Silent]) -> Failure | Success | None:
    """Return what a dead actor's row says of a replica of ours; None where that is neither failure nor success.

    The actors of its earlier tries are added to `tried_again`, it itself to `silent` where it says no time.
    """
    name, cause = parse_actor_name(str(row.get("name"))), object_of(row.get("death_cause"))
    texts = list(death_messages(cause))
    said = packed_failure(texts)
    if name is None or name.replica_id is None or row.get("ray_namespace") != namespace or row.get("state") != "DEAD":
        return None
    marks = read_marks(text_of(row.get("repr_name")) or "")
    said = said or marks.failed
    tried_again |= {*texts_of(said.get("earlierTries")), *marks.earlier_tries}
    if not said and not _failed(cause):
        return success_of(name.model, marks, count_of(row.get("num_restarts")))
    node_ids = texts_of(said.get("nodeIds")) or marks.node_ids
    last, at, actor_id = text_of(row.get("node_id")), moment_of(said.get("at")), text_of(row.get("actor_id"))
    if at is None and actor_id:
        silent.append(Silent(actor_id, str(row["name"]), text_of(row.get("job_id")) or "",
                             text_of(row.get("repr_name")) or ""))
    return Failure(
        model=name.model, replica_id=name.replica_id, actor_id=actor_id,
        fleet=text_of(said.get("fleet")) or marks.fleet, spec_hash=text_of(said.get("specHash")) or marks.spec_hash,
        node_ids=list(dict.fromkeys(node_ids or ([last] if last else []))),
        gpu_uuids=texts_of(said.get("gpuUuids")) or marks.gpu_uuids,
        code=text_of(said.get("code")) or "REPLICA_DIED",
        message=text_of(said.get("message")) or next((line for text in texts for line in text.splitlines()), ""),
        at=at, restarts=count_of(row.get("num_restarts")))


def success_of(model: str, marks: Marks, restarts: int) -> Success | None:
    """Return the success of a replica that is gone; None where it was never ready, or restarted more than once.

    One restart may have been the death of its node.
    """
    if marks.ready_at is None or restarts > 1:
        return None
    return Success(model=model, spec_hash=marks.spec_hash, at=marks.ready_at, node_ids=marks.node_ids,
                   gpu_uuids=marks.gpu_uuids)


def _failed(cause: Mapping[str, Any]) -> bool:
    """Return whether an actor ended by itself, on a node that stayed."""
    died = object_of(cause.get("actor_died_error_context"))
    return died.get("reason") == "WORKER_DIED" or any(cause.get(kind) for kind in BY_ITSELF)
