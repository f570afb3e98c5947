"""Failed replicas, from Ray's dead actors: when, where, with which spec, and why; and the successes since then.

A replica's cause of death holds what the agent knew. If Ray or the kernel ended it, the rest comes from Ray's time of
death and the plan of the apply that created it. Evicted replicas and replicas whose node is gone are not failures: they
count as successes if they had become ready. Records of older agents are read as far as possible. How long a start took
is known of each replica that says it.

Also the plans of replicas that have no repr yet, from the logs of the jobs that created them. A replica describes
itself in its repr once it is up. Until then Ray knows its name and the job that created it, and that job has written
its plan to its log before creating anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from fleetctl.documents.base import as_datetime, is_model_key
from fleetctl.documents.inventory import CARD_FAILURES, WEIGHTS_FROM, Failure, Start, Success
from fleetctl.documents.record import ApplyRecord
from fleetctl.errors import InventoryError
from fleetctl.inventory.actors import Listing, LiveActor, Row, death_messages, integer_of, list_rows, packed_failure
from fleetctl.inventory.client import DashboardClient, ask_all
from fleetctl.inventory.jobs import Job, log_of
from fleetctl.inventory.json_values import (
    list_of,
    moment_of,
    moment_of_ms,
    object_of,
    parse_text,
    text_of,
    texts_of,
    whole_of,
)
from fleetctl.inventory.marks import Marks, are_bounded, parse_actor_name, read_marks, variant_name, without_place

CLASSES = ("ModelActor", "GangCoordinator")
"""The classes of our replicas; see agent/create.py."""
OWN_FAILURES = ("creation_task_failure_context", "oom_context")
"""Kinds of death that are the actor's own failure; the third is a worker that died, see `failed_itself`."""
ACCEPTED = '"type":"planAccepted"'
KEPT_STARTS = 20
"""Starts of one spec, with weights from the same kind of source, that plans may look at."""


class Silent(NamedTuple):
    """An actor that did not record when it ended."""

    actor_id: str
    name: str
    job_id: str
    repr_name: str


class Ended(NamedTuple):
    """The outcomes of ended replicas; failures in order of their actors' ids, `silent` ones included."""

    failures: Sequence[Failure] = ()
    successes: Sequence[Success] = ()
    silent: Sequence[Silent] = ()
    starts: Sequence[Start] = ()


def list_ended(client: DashboardClient, namespace: str) -> Ended:
    """Return the ended replicas that Ray remembers in `namespace`.

    Raises InventoryError also if the list is incomplete: then failures in a row cannot be counted.
    """
    ended, losses = read_ended(client, namespace)
    if losses:
        raise InventoryError("; ".join(losses))
    return ended


def read_ended(client: DashboardClient, namespace: str) -> tuple[Ended, list[str]]:
    """Return the ended replicas that Ray lists, and why the list may lack some; raises InventoryError.

    A replica that was created again on other cards has not failed: only its last try counts, and cards that failed.
    """
    outcomes, tried_again, silent = list[Failure | Success](), set[str](), list[Silent]()
    starts, losses = list[Start](), list[str]()
    for name in CLASSES:
        listing: Listing[Failure | Success] = list_rows(
            client, "actors", lambda row: _read(row, namespace, tried_again, silent, starts),
            filters=[("state", "=", "DEAD"), ("class_name", "=", name)])
        losses += listing.losses
        outcomes.extend(listing.rows)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)
                and (outcome.actor_id not in tried_again or outcome.code in CARD_FAILURES)]
    return Ended(sorted(failures, key=lambda outcome: outcome.actor_id or ""),
                 [outcome for outcome in outcomes if isinstance(outcome, Success)], silent, starts), losses


def after_failures(successes: Iterable[Success], failures: Sequence[Failure]) -> Iterator[Success]:
    """Yield the successes that come after a failure of the same spec or on one of the same nodes."""
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


def _read(
    row: Row, namespace: str, tried_again: set[str], silent: list[Silent], starts: list[Start]
) -> Failure | Success | None:
    """Return the failure or success of one of our replicas from a dead actor's row; None if it is neither.

    Adds the actors of its earlier tries to `tried_again`, the actor itself to `silent` if it recorded no time, and its
    start to `starts` if it became ready.
    """
    name, cause = parse_actor_name(str(row.get("name"))), object_of(row.get("death_cause"))
    if name is None or name.replica_id is None or not is_model_key(name.model):
        return None
    if row.get("ray_namespace") != namespace or row.get("state") != "DEAD":
        return None
    marks, texts = read_marks(text_of(row.get("repr_name")) or ""), list(death_messages(cause))
    record = packed_failure(texts) or marks.failed
    tried_again |= {*texts_of(record.get("earlierTries")), *marks.earlier_tries}
    if start := start_of(name.model, marks):
        starts.append(start)
    if not record and not failed_itself(cause):
        return success_of(name.model, marks, integer_of(row.get("num_restarts")))
    node_ids = texts_of(record.get("nodeIds")) or marks.node_ids
    last, at, actor_id = text_of(row.get("node_id")), moment_of(record.get("at")), text_of(row.get("actor_id"))
    if at is None and actor_id:
        silent.append(Silent(actor_id, str(row["name"]), text_of(row.get("job_id")) or "",
                             text_of(row.get("repr_name")) or ""))
    return Failure(
        model=name.model, replica_id=name.replica_id, actor_id=actor_id,
        fleet=text_of(record.get("fleet")) or marks.fleet, spec_hash=text_of(record.get("specHash")) or marks.spec_hash,
        node_ids=list(dict.fromkeys(node_ids or ([last] if last else []))),
        gpu_uuids=texts_of(record.get("gpuUuids")) or marks.gpu_uuids,
        gpu_indices=[index for item in list_of(record.get("gpuIndices")) if (index := whole_of(item)) is not None],
        code=text_of(record.get("code")) or "REPLICA_DIED",
        message=text_of(record.get("message")) or next((line for text in texts for line in text.splitlines()), ""),
        at=at, restarts=integer_of(row.get("num_restarts")))


def success_of(model: str, marks: Marks, restarts: int) -> Success | None:
    """Return the success of an ended replica; None if it was never ready or was restarted more than once.

    A single restart may be due to the death of its node.
    """
    if marks.ready_at is None or restarts > 1:
        return None
    return Success(model=model, spec_hash=marks.spec_hash, at=marks.ready_at, node_ids=marks.node_ids,
                   gpu_uuids=marks.gpu_uuids)


def start_of(model: str, marks: Marks) -> Start | None:
    """Return how long a replica took to become ready; None if it does not say so."""
    if marks.started_in is None or marks.ready_at is None or not marks.fleet:
        return None
    held = [(member.node_id, member.weights) for member in marks.members if member.weights]
    sizes = Counter[str | None]()
    for node_id, weights in held:
        sizes[node_id] += weights.bytes or 0
    sources = {weights.fetched.source for _, weights in held if weights.fetched}
    return Start(model=model, spec_hash=marks.spec_hash, seconds=marks.started_in, at=marks.ready_at,
                 node_ids=marks.node_ids, artifact=held[0][1].artifact if held else None,
                 weights=next((kind for kind in WEIGHTS_FROM if kind in sources), None),
                 bytes=max(sizes.values(), default=0))


def newest_starts(starts: Iterable[Start]) -> list[Start]:
    """Return the newest KEPT_STARTS of each spec and source of weights, oldest first."""
    ordered = sorted(starts, key=lambda start: (as_datetime(start.at), start.model, start.node_ids, start.seconds))
    kept, counts = list[Start](), Counter[tuple[str, str | None, str | None]]()
    for start in reversed(ordered):
        counts[key := (start.model, start.spec_hash, start.weights)] += 1
        if counts[key] <= KEPT_STARTS:
            kept.append(start)
    return kept[::-1]


def failed_itself(cause: Mapping[str, Any]) -> bool:
    """Return whether an actor failed on its own, on a node that stayed alive."""
    died = object_of(cause.get("actor_died_error_context"))
    return died.get("reason") == "WORKER_DIED" or any(cause.get(kind) for kind in OWN_FAILURES)


def drivers_of(actors: Iterable[LiveActor | Silent]) -> Iterator[str]:
    """Yield the drivers that created the actors which are named like our replicas and have no repr yet."""
    for actor in actors:
        name = parse_actor_name(actor.name) if not actor.repr_name else None
        if name is not None and name.replica_id is not None and actor.job_id:
            yield actor.job_id


def find_planned(
    client: DashboardClient, jobs: Sequence[Job], actors: Collection[LiveActor | Silent]
) -> Mapping[str, Marks]:
    """Return the plans by actor id, for the `actors` that our jobs created and that have no repr yet.

    A plan has no members if the log does not have it. Only the needed logs are read, each once, in parallel.
    """
    by_driver = {job.driver_id: job for job in jobs if job.driver_id}
    silent: dict[str, tuple[str, Job]] = {}
    for actor in actors:
        job, name = by_driver.get(actor.job_id), parse_actor_name(actor.name)
        if not actor.repr_name and job and name and name.replica_id is not None:
            silent[actor.actor_id] = actor.name, job
    needed = list({job.submission_id: job for _, job in silent.values()}.values())
    records = ask_all(lambda job: dict(_records(client, job)), needed)
    logs = {job.submission_id: replicas for job, replicas in zip(needed, records, strict=True)}
    return {actor_id: logs[job.submission_id].get(actor_name) or _planned_by(job)
            for actor_id, (actor_name, job) in silent.items()}


def _records(client: DashboardClient, job: Job) -> Iterator[tuple[str, Marks]]:
    """Yield a job's planned replicas by actor name; nothing if its log cannot be read."""
    try:
        log = log_of(client, job.submission_id) or ""
    except InventoryError:
        return
    for record in plans_in(log):
        for replica in record.replicas:
            members = tuple(replica.members) if are_bounded(replica.members) else ()
            yield f"ModelActor:{replica.model}:{replica.replica_id}", replace(
                _planned_by(job), spec_hash=replica.spec_hash, variant=variant_name(replica.variant),
                members=tuple(map(without_place, members)))


def _planned_by(job: Job) -> Marks:
    return Marks(job.metadata.get("fleet", ""), job.metadata.get("namespace"), begun=moment_of_ms(job.start_time_ms))


def plans_in(log: str) -> Iterator[ApplyRecord]:
    """Yield the plans in an apply's log that it has accepted."""
    for line in log.split("\n"):
        if ACCEPTED in line:
            try:
                yield ApplyRecord.model_validate(parse_text(line))
            except ValueError:
                continue
