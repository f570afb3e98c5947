"""Deletes ended runs that `spec.history` no longer keeps from Ray's list of jobs, which other commands read whole.

Only runs of one fleet, and of no fleet, such as notes about nodes; never a job of another program. A run stays as
long as something needs it (`Needs`), whatever its age. Ray's own record of a run's process stays; docs/history.md.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from fleetctl.apply.history import SpecOf, may_record, recorded_in
from fleetctl.documents.base import as_datetime, moment_at
from fleetctl.documents.fleet import MIN_KEPT_S, History
from fleetctl.documents.plan import Plan, PlanHistory
from fleetctl.documents.quantity import MAX_SECONDS, grouped
from fleetctl.errors import ClusterRefused, InventoryError
from fleetctl.inventory.actors import list_live_actors, list_rows
from fleetctl.inventory.client import READERS, DashboardClient, ask_all
from fleetctl.inventory.failures import read_ended
from fleetctl.inventory.jobs import JOBS_PATH, STANDBY, Job, list_jobs, log_of
from fleetctl.inventory.json_values import moment_of, text_of
from fleetctl.inventory.records import (
    CORDON,
    RELOAD,
    SLOTS,
    Record,
    Records,
    count_jobs,
    read_rows,
    records_of,
    with_jobs,
)
from fleetctl.inventory.reloads import reloads_in
from fleetctl.inventory.replicas import find_replicas
from fleetctl.inventory.uptimes import with_deaths

AT_ONCE, WITHIN_S = 200, 10.0
"""How many runs one apply deletes at most, and how long that may take with everything it reads before."""
MAX_ROWS = 10_000
"""With more jobs an apply does not read the list: it takes too long, and the dashboard answers nobody meanwhile."""
SLACK = 50
"""How many runs too many an apply leaves: otherwise every apply would read all of this for the sake of one run."""
UNBROKEN_S = 24 * 3600 + MAX_SECONDS
"""Failures of a model with longer gaps are not in a row for any fleet; see planner/breaker.py:FORGOTTEN_S."""
NEVER = float("inf")
ALREADY_GONE = "does not exist"
"""Ray's words for a job that it does not know; a proxy that passes no DELETE has others."""
NOT_ALLOWED = "{}: the dashboard, or a proxy in front of it, deletes no jobs"
_OUR_ID = re.compile("fleetctl-([a-z]+(?:-[a-z]+)*)-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Needs:
    """What in the cluster may still need a run: its metadata or its log.

    `drivers` = Ray's ids of the runs whose actors live, or have failed without a record that says when, with a failure
    that may count for a cooldown. `runs` = the ids of those that reloaded a live replica, or whose metadata has what no
    row of records has. `specs` = the specs of live replicas that neither of these has recorded.
    """

    drivers: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    specs: frozenset[SpecOf] = frozenset()


def default_history() -> PlanHistory:
    """Return the history of a fleet whose file does not say."""
    return PlanHistory(**History().model_dump())


def beyond(jobs: Sequence[Job], fleet: str, namespace: str, keep: PlanHistory, now_s: float) -> list[Job]:
    """Return the ended runs of a fleet, and of no fleet, that are too many and too old, from oldest to newest.

    `jobs` are all of ours, from oldest to newest. The newest run of each verb is never among them.
    """
    groups: defaultdict[bool, list[Job]] = defaultdict(list)
    for job in jobs:
        of_fleet = job.metadata.get("fleet")
        if of_fleet is None or (of_fleet == fleet and job.metadata.get("namespace", namespace) == namespace):
            groups[of_fleet is None].append(job)
    too_many = {job.submission_id for group in groups.values() for job in group[:-keep.keep_runs]}
    newest = {(of_none, job.metadata.get("verb")): job for of_none, group in groups.items() for job in group}
    too_many -= {job.submission_id for job in newest.values()}
    oldest_s = now_s - max(keep.keep_for, MIN_KEPT_S)
    return [job for job in jobs if job.submission_id in too_many and job.ended and _is_ours(job)
            and max(job.start_time_ms, job.end_time_ms) / 1000 < oldest_s]


def _is_ours(job: Job) -> bool:
    """Return whether the id is that of a run, which other jobs with our metadata and our record rows do not have."""
    parts = _OUR_ID.fullmatch(job.submission_id)
    verb = job.metadata.get("verb")
    return parts is not None and parts[1] == ("apply" if verb == STANDBY else verb)


def read_needs(client: DashboardClient, jobs: Sequence[Job], fleet: str, namespace: str, now_s: float) -> Needs:
    """Read what the cluster needs of `jobs`; raises InventoryError if a part cannot be read completely."""
    rows = read_rows(client)
    listing = list_live_actors(client)
    nodes = list_rows(client, "nodes", lambda row: text_of(row.get("node_id")) if row.get("state") != "DEAD" else "")
    if problems := [*rows.failures, *listing.problems, *nodes.losses]:
        raise InventoryError("; ".join(problems))
    ended, losses = read_ended(client, namespace)
    # a list that is cut makes no cooldowns, and never becomes whole again
    counted, silent = ([], []) if losses else (with_deaths(client, ended.failures, {}, moment_at(now_s)),
                                                ended.silent)
    reloads = reloads_in(with_jobs(rows, jobs))
    since = _in_a_row([*((failure.model, failure.at) for failure in counted if failure.at),
                       *((reload.model, reload.at) for reload in reloads if reload.code)], now_s)
    late = {failure.actor_id for failure in counted
            if failure.at is None or _seconds(failure.at) >= since.get(failure.model, NEVER)}
    noted = _noted_by(jobs, rows, {actor.actor_id for actor in listing.rows}, {*nodes.rows}, since)
    recorded = {job.driver_id for job in jobs if job.driver_id and job.metadata.get("verb") == "apply"}
    return Needs(
        frozenset(actor.job_id for actor in listing.rows) | {
            actor.job_id for actor in silent if actor.actor_id in late},
        frozenset(noted),
        frozenset((own.replica.model, own.replica.spec_hash) for own in find_replicas(listing.rows, namespace, {})
                  if own.replica.fleet == fleet and own.replica.spec_hash and own.actor.job_id not in recorded))


def _noted_by(
    jobs: Iterable[Job], rows: Records, actors: Collection[str], nodes: Collection[str], since: Mapping[str, float]
) -> Iterator[str]:
    """Yield the runs that reloaded one of these live `actors`, or have in their metadata alone what may still count.

    `rows` need no run for what they have. `since` = the first of a model's failures that may count.
    """
    in_rows, newest = dict[tuple[str, str], str](), dict[tuple[str, str], tuple[Record, str]]()
    for record in rows.newest:
        in_rows[record.kind, record.subject] = record.at
        actor, _, run = record.subject.partition("/")
        if record.kind == RELOAD and actor in actors:
            yield run
    for job in jobs:
        for note in records_of([job]):
            if note.at > in_rows.get((note.kind, note.subject), ""):
                newest[note.kind, note.subject] = note, job.submission_id
    for note, run in newest.values():
        about, at = note.subject.partition("/")[0], moment_of(note.payload.get("at"))
        if note.kind in (CORDON, SLOTS) or about in nodes or about in actors or (
                note.kind == RELOAD and at and _seconds(at) >= since.get(str(note.payload.get("model")), NEVER)):
            yield run


def _in_a_row(failures: Iterable[tuple[str, str]], now_s: float) -> dict[str, float]:
    """Return the first failure of each model after which there was no long gap up to now, in seconds since the epoch.

    `failures` = model keys and times.
    """
    first = dict[str, float]()
    for model, times in grouped((model, _seconds(at)) for model, at in failures).items():
        for at in sorted(times, reverse=True):
            if first.get(model, now_s) - at > UNBROKEN_S:
                break
            first[model] = at
    return first


def _seconds(moment: str) -> float:
    return as_datetime(moment).timestamp()


def unneeded(client: DashboardClient, runs: Iterable[Job], needs: Needs) -> Iterator[Job]:
    """Yield the runs that nothing needs; raises InventoryError if a log cannot be read.

    Logs are read, a few ahead, only if there are specs to look for.
    """
    left = (job for job in runs if job.submission_id not in needs.runs and (
        not job.driver_id or job.driver_id not in needs.drivers))
    while batch := list(islice(left, READERS)):
        logs = ask_all(lambda job: log_of(client, job.submission_id) if needs.specs and may_record(job) else "", batch)
        for job, log in zip(batch, logs, strict=True):
            if log is not None and not any((recorded.model.key, recorded.model.spec_hash) in needs.specs
                                           for recorded in recorded_in(log, job.submission_id)):
                yield job


def find_old(client: DashboardClient, fleet: str, namespace: str, keep: PlanHistory, now_s: float, *,
             slack: int = 0) -> Iterator[Job]:
    """Yield the runs of a fleet, and of no fleet, to delete, oldest first; none if they are only `slack` too many.

    `now_s` = this machine's time, in seconds since the epoch, if the cluster does not tell its own. Raises
    InventoryError.
    """
    jobs = list_jobs(client)
    now_s = client.cluster_time() or now_s
    old = beyond(jobs, fleet, namespace, keep, now_s)
    if len(old) <= slack:
        return
    yield from unneeded(client, old, read_needs(client, jobs, fleet, namespace, now_s))


@dataclass(slots=True)
class Deletion:
    """The ids of deleted runs, and why others, which should have been deleted, were not; empty = there are none."""

    deleted: list[str] = field(default_factory=list)
    problem: str = ""


def delete_runs(client: DashboardClient, runs: Iterable[Job], go_on: Callable[[], bool] = lambda: True) -> Deletion:
    """Delete runs from Ray's list, a few at once, while `go_on`; stops at the first that the cluster does not delete.

    Raises no error: `problem` has it.
    """
    done, runs = Deletion(), iter(runs)
    try:
        while not done.problem and go_on() and (batch := list(islice(runs, READERS))):
            problems = ask_all(lambda job: _delete(client, job), batch)
            done.deleted += [job.submission_id for job, why in zip(batch, problems, strict=True) if not why]
            done.problem = next(filter(None, problems), "")
    except InventoryError as error:
        done.problem = error.message
    return done


def _delete(client: DashboardClient, job: Job) -> str:
    """Return why a run was not deleted; that another client has deleted it is no problem."""
    try:
        answer = client.request("DELETE", f"{JOBS_PATH}{job.submission_id}")
    except ClusterRefused as error:
        return NOT_ALLOWED.format(error.message)
    if answer.status_code == 200 or (answer.status_code == 404 and ALREADY_GONE in answer.text):
        return ""
    said = f"DELETE was answered with {answer.status_code}{answer.via}"
    return NOT_ALLOWED.format(said) if answer.status_code in (404, 405, 501) else said


def delete_old_runs(
    client: DashboardClient, plan: Plan, now_s: float, clock: Callable[[], float] = time.monotonic
) -> Deletion:
    """After an apply of `plan`: delete what its fleet's history no longer keeps, within WITHIN_S and at most AT_ONCE.

    The list of jobs is not read if the records say that it cannot have too many of our runs, or is too long.
    """
    keep, until, client = plan.fleet.history or default_history(), clock() + WITHIN_S, client.within(WITHIN_S)
    try:
        table_rows, run_rows = count_jobs(client)
        if 0 < run_rows <= keep.keep_runs + SLACK:
            return Deletion()
        if table_rows > MAX_ROWS:
            return Deletion(problem=f"with {table_rows} jobs it takes too long to read after an apply")
    except InventoryError as error:
        return Deletion(problem=error.message)
    old = find_old(client, plan.fleet.name, plan.fleet.namespace, keep, now_s, slack=SLACK)
    return delete_runs(client, islice(old, AT_ONCE), lambda: clock() < until)
