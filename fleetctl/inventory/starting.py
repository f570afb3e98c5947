"""The plans of replicas that have no repr yet, from the logs of the jobs that created them.

A replica describes itself in its repr once it is up. Until then Ray knows its name and the job that created it, and
that job has written its plan to its log before creating anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fleetctl.documents.record import ApplyRecord
from fleetctl.errors import InventoryError
from fleetctl.inventory.actors import LiveActor
from fleetctl.inventory.ask_all import ask_all
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.failures import Silent
from fleetctl.inventory.jobs import Job, log_of
from fleetctl.inventory.json_entries import parse_text
from fleetctl.inventory.json_values import moment_of_ms
from fleetctl.inventory.marks import Marks, are_bounded, parse_actor_name, without_place

ACCEPTED = '"type":"planAccepted"'


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
    logs = {job.submission_id: found for job, found in zip(needed, records, strict=True)}
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
                _planned_by(job), spec_hash=replica.spec_hash, members=tuple(map(without_place, members)))


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
