"""The history of a cluster: Ray's list of fleetctl jobs, and their logs, which also record replica shapes.

Ray keeps every job until its session ends. The list is one request, and each log is another. Logs are read in
parallel, and only if they are shown or needed.

How a run ended comes from its job and its log. Nothing is guessed: anything else is `unknown`. The agent logs each
action before it acts, so a complete log without the line proves that nothing was done. What became of the replicas that
were starting when an apply ended comes from Ray's actors, of which each names the run that created it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple, get_args

from pydantic import TypeAdapter, ValidationError

from fleetctl.apply.follow import parse_line
from fleetctl.apply.jobs import agent_package
from fleetctl.apply.outcome import FINE, final_exit_code
from fleetctl.documents.base import as_datetime
from fleetctl.documents.events import (
    Event,
    History,
    HistoryEntry,
    HistoryRun,
    Outcome,
    ReplicaOutcome,
    RunState,
    RunSummary,
)
from fleetctl.documents.inventory import LIVE_STATES, Level
from fleetctl.documents.mask import MASK
from fleetctl.documents.plan import Plan
from fleetctl.documents.position import FleetSource
from fleetctl.documents.quantity import count_of, number_in
from fleetctl.documents.record import RecordedModel
from fleetctl.errors import ApplyError, InventoryError, LockHeld, PlanUsed
from fleetctl.fleetfile.resolved import hash_of_shape
from fleetctl.inventory.actors import Row, death_messages, integer_of, list_rows, packed_failure
from fleetctl.inventory.client import READERS, DashboardClient, ask_all
from fleetctl.inventory.failures import failed_itself, plans_in
from fleetctl.inventory.jobs import AGENT, READ_ONLY, STANDBY, TOOL, Job, find_job, list_jobs, log_of, named_replicas
from fleetctl.inventory.json_values import moment_of_ms, object_of, text_of, texts_of
from fleetctl.inventory.marks import parse_actor_name, read_marks
from fleetctl.inventory.records import NOTES, note_text, read_records

NEVER_STARTED = frozenset({
    "JOB_SUPERVISOR_ACTOR_START_FAILURE", "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE", "RUNTIME_ENV_SETUP_FAILURE",
})
"""Ray's error types for a job whose command was never started."""

FIRST_ACTION = {"apply": "lockAcquired", "evict": "replicaEnding", "restart": "replicaEnding"}
"""The event before the first action of a run, by verb."""
NO_LONGER_KNOWN = "NO_LONGER_KNOWN"
"""The code of a replica that was starting when its run ended, and that Ray no longer remembers."""
LOOKED_BACK = 20
"""How many earlier applies may have created what a run only waited for."""
LATEST, WHOLE_ID = "latest", re.compile("fleetctl-[a-z-]+-[0-9a-f]{12}")
_FILES = TypeAdapter(list[FleetSource])
SpecOf = tuple[str, str]
"""A model key and a spec hash."""
BATCH = 4 * READERS
"""How many logs `find_recorded` reads before it checks whether it has found all."""


class Became(NamedTuple):
    """What became of a replica that one run has created; the inventory knows only the newest replica of an id.

    `ready_at` = when it was ready, of one that was never restarted.
    """

    outcome: Outcome
    code: str | None = None
    message: str = ""
    ready_at: str | None = None


UNREAD = Became("starting")
"""What is shown of a replica where Ray's actors cannot be read: what its run said."""


@dataclass(frozen=True, slots=True)
class RunLog:
    """The readable part of a run's log. `whole` = the complete log, not only its end, which Ray keeps with the job.

    `problem` = why the log is missing, if known; `later` = what became of replicas that it leaves starting, by model
    and id.
    """

    events: tuple[Event, ...] = ()
    whole: bool = False
    problem: str = ""
    later: Mapping[tuple[str, int | None], ReplicaOutcome] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How a run ended, or its progress."""

    state: RunState
    message: str
    code: str | None = None


def read_log(text: str | None, job: Job, problem: str = "") -> RunLog:
    """Parse a job's log, or, if it is gone, the end of it that Ray keeps with the job.

    An empty log counts as missing: Ray serves one if the file is gone.
    """
    if text:
        return RunLog(_events(text), whole=True)
    return RunLog(_events(job.message), problem=problem)


def _events(text: str) -> tuple[Event, ...]:
    return tuple(event for event in map(parse_line, text.split("\n")) if event is not None)


def status_of(job: Job, log: RunLog) -> RunStatus:
    """Return how the run ended. A note has no run: it is `ok` once it is in the list of jobs."""
    if job.metadata.get("verb") in NOTES:
        return RunStatus("ok", note_text(job.metadata))
    summary = summary_of(log)
    if summary is not None:
        return _from_summary(summary, outcomes_of(log), idle=_was_idle(job, log), later=bool(log.later))
    if not job.ended:
        return _under_way(job, log)
    if not log.events:
        return _without_log(job, log)
    if _was_idle(job, log):
        return RunStatus("refused", f"it ended before its first action ({job.end_text})", "NOT_BEGUN")
    return RunStatus("unknown", f"it ended without a summary ({job.end_text})",
                     "INTERRUPTED" if job.status == "STOPPED" else "DIED")


def summary_of(log: RunLog) -> RunSummary | None:
    """Return the summary, if the run has written one."""
    return next((event for event in reversed(log.events) if isinstance(event, RunSummary)), None)


def outcomes_of(log: RunLog) -> list[ReplicaOutcome]:
    """Return the outcome of each replica, from the cluster, else from the summary or, without one, from the events."""
    summary = summary_of(log)
    if summary is not None:
        return [log.later.get((row.model, row.replica_id), row) for row in summary.outcomes]
    reported: dict[tuple[str, int | None], ReplicaOutcome] = {}
    for event in log.events:
        if (row := _reported(event)) is not None:
            reported[row.model, row.replica_id] = row
    return [log.later.get(key, row) for key, row in reported.items()]


def _from_summary(summary: RunSummary, outcomes: Sequence[ReplicaOutcome], *, idle: bool, later: bool) -> RunStatus:
    """Return the status according to the agent's summary, and to what is known of the replicas `later`.

    An eviction by an older release has no outcomes.
    """
    if summary.exit_code == LockHeld.exit_code:
        return RunStatus("refused", summary.message, "LOCK_HELD")
    if summary.exit_code == PlanUsed.exit_code:
        return RunStatus("refused", summary.message, "PLAN_USED")
    if summary.exit_code == ApplyError.exit_code:
        return RunStatus("refused", summary.message, "NOT_BEGUN") if idle else RunStatus("partial", summary.message)
    if summary.interrupted and not summary.outcomes:
        return RunStatus("refused", summary.message, "INTERRUPTED")
    count = sum(row.replicas for row in outcomes)
    is_ready = sum(row.replicas for row in outcomes if row.outcome == "ready")
    status = RunStatus("ok", f"{is_ready} of {count} ready" if later else summary.message)
    remembered = [row for row in outcomes if row.code != NO_LONGER_KNOWN]
    if final_exit_code(remembered, interrupted=False) != FINE:
        return replace(status, state="partial", code="INTERRUPTED" if summary.interrupted else None)
    if forgotten := count - sum(row.replicas for row in remembered):
        why = f"what became of {count_of(forgotten, 'replica')} is no longer known"
        status = RunStatus("unknown", why, NO_LONGER_KNOWN)
    return status


def _under_way(job: Job, log: RunLog) -> RunStatus:
    kinds = {event.type for event in log.events}
    if not log.events:
        pending = job.status == "PENDING"
        if job.metadata.get("verb") == STANDBY and not pending:
            return RunStatus("running", "its agent waits for a plan")
        return RunStatus("running", "the cluster is starting it" if pending else "it has written nothing yet")
    if "lockWaiting" in kinds and "lockAcquired" not in kinds:
        return RunStatus("running", "waiting for the lock of its fleet", "WAITING")
    done = sum(row.replicas for row in outcomes_of(log) if row.code != "NOT_REPORTED")
    of = f" of {create}" if (create := job.metadata.get("create")) else ""
    return RunStatus("running", f"{done}{of} done")


def _without_log(job: Job, log: RunLog) -> RunStatus:
    if job.error_type in NEVER_STARTED:
        return RunStatus("refused", f"the cluster could not start it ({job.end_text})", "NOT_BEGUN")
    why = log.problem or "its log is empty or gone"
    return RunStatus("unknown", f"{why} ({job.end_text})", "INTERRUPTED" if job.status == "STOPPED" else "LOG_GONE")


def _was_idle(job: Job, log: RunLog) -> bool:
    """Return whether the run certainly did nothing: its log is complete and has no first action."""
    action = FIRST_ACTION.get(job.metadata.get("verb", ""))
    return log.whole and action is not None and all(event.type != action for event in log.events)


def _reported(event: Event) -> ReplicaOutcome | None:
    """Return the outcome in a replica's event; None if there is none. After `replicaCreated` the state is unknown."""
    if not event.type.startswith("replica"):
        return None
    fields = event.model_extra or {}
    if event.type == "replicaCreated":
        fields = {**fields, "outcome": "starting", "code": "NOT_REPORTED",
                  "message": "created; nothing later was reported"}
    # the agent's message without what the outcome's other fields contain
    _, _, why = event.message.partition(f"{fields.get('model')}/{fields.get('replicaId')}: {fields.get('outcome')}")
    try:
        return ReplicaOutcome.model_validate({"message": why.partition(": ")[2], **fields})
    except ValidationError:
        return None


def runs_of(client: DashboardClient, fleet: str | None) -> list[Job]:
    """Return the runs of one fleet, or of all, newest first, without those that only examined nodes."""
    return [job for job in reversed(list_jobs(client)) if fleet in (None, job.metadata.get("fleet"))
            and job.metadata.get("verb") not in READ_ONLY]


def recent_runs(client: DashboardClient, fleet: str | None) -> list[Job]:
    """Return the newest runs of one fleet, or of all, newest first, even if the list of jobs cannot be read.

    Raises InventoryError if no run is known.
    """
    records = read_records(client)
    if records.unknown:
        raise InventoryError(records.unknown)
    return [job for job in reversed(records.runs) if fleet in (None, job.metadata.get("fleet"))
            and job.metadata.get("verb") not in READ_ONLY]


def find_run(
    client: DashboardClient, wanted: str, fleet: str | None, verb: str | None = None,
    runs_in: Callable[[DashboardClient, str | None], list[Job]] = recent_runs,
) -> Job:
    """Return one run by its id; see `pick`. For a whole id the cluster is asked directly, else for the `runs_in` it."""
    whole = find_job(client, wanted) if WHOLE_ID.fullmatch(wanted) else None
    runs = [whole] if whole and whole.metadata.get("tool") == TOOL else runs_in(client, fleet)
    return pick([job for job in runs if fleet in (None, job.metadata.get("fleet"))
                 and verb in (None, job.metadata.get("verb"))], wanted)


def read_history(client: DashboardClient, fleet: str | None, limit: int) -> History:
    """Return the newest `limit` runs; raises InventoryError if the list of jobs cannot be read."""
    runs = runs_of(client, fleet)
    shown = runs[:limit]
    logs = _with_later(client, shown, read_logs(client, shown), fleet, runs)
    entries = [_entry(job, log) for job, log in zip(shown, logs, strict=True)]
    return History(source=client.base_url, fleet=fleet, total=len(runs), runs=entries)


def read_run(client: DashboardClient, wanted: str, fleet: str | None) -> HistoryRun:
    """Return one run with its log. `wanted` = a job or plan id, a prefix of one, or `latest`; see `pick`."""
    job = find_run(client, wanted, fleet, runs_in=runs_of)
    [log] = _with_later(client, [job], read_logs(client, [job]), fleet)
    return HistoryRun(**dict(_entry(job, log)), files=_files(log.events), outcomes=outcomes_of(log),
                      events=list(log.events))


def failures_of(client: DashboardClient, plan: Plan) -> list[ReplicaOutcome]:
    """Return the failed replicas of the latest apply whose models are still short of their target in the plan.

    Raises InventoryError when neither records nor list can be read.
    """
    name = plan.fleet.name
    latest = next((job for job in recent_runs(client, name) if job.ended and job.metadata.get("verb") == "apply"), None)
    if latest is None:
        return []
    short = {row.key for row in plan.models if row.create or row.blocked}
    outcomes = read_run(client, latest.submission_id, name).outcomes
    return [row for row in outcomes if row.outcome == "failed" and row.model in short]


def pick(runs: Sequence[Job], wanted: str) -> Job:
    """Return the run with this id; raises ApplyError if there is none, or lists the candidates if there are several.

    A prefix of the id is enough, or of its last part: the other parts are the same for all runs.
    """
    if wanted == LATEST:
        matching = [job for job in runs if job.metadata.get("verb") != STANDBY][:1]  # it waits to be the next run
    else:
        matching = ([job for job in runs if job.submission_id == wanted]
                    or [job for job in runs if any(run_id.startswith(wanted) for run_id in _ids(job))])
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise ApplyError(f"no such run: {wanted}",
                         hint="`fleetctl history` lists the runs; the history of a new Ray session is empty")
    hint = "give more of the id"
    if len(commands := {job.metadata.get("stepOf") for job in matching}) == 1 and commands != {None}:
        hint = "these are steps of one command; give the id of one step"
    listed = ", ".join(job.submission_id for job in matching[:5]) + (", ..." if len(matching) > 5 else "")
    raise ApplyError(f"{wanted} matches {len(matching)} runs: {listed}", hint=hint)


def _ids(job: Job) -> list[str]:
    command = job.metadata.get("stepOf", "")
    ids = [job.submission_id, job.submission_id.rpartition("-")[2], job.metadata.get("planId", ""), command,
           command.rpartition("-")[2]]
    return [run_id for run_id in ids if run_id]


def read_logs(client: DashboardClient, runs: Sequence[Job]) -> list[RunLog]:
    """Return the log of each job, in order; the log that cannot be read has a `problem`."""
    return [read_log(text, job, problem) for job, (text, problem) in zip(runs, _texts(client, runs), strict=True)]


def _texts(client: DashboardClient, runs: Sequence[Job]) -> list[tuple[str | None, str]]:
    """Return the text of each job's log, or None and the reason."""
    def text_of(job: Job) -> tuple[str | None, str]:
        try:
            text = log_of(client, job.submission_id)
        except InventoryError as error:
            return None, f"its log could not be read: {error.message}"
        return text, "" if text is not None else "its log is gone: the cluster cannot serve it"

    return ask_all(text_of, runs)


def _with_later(client: DashboardClient, shown: Sequence[Job], logs: Sequence[RunLog], fleet: str | None,
                runs: Sequence[Job] | None = None) -> list[RunLog]:
    """Return the logs with what became of the replicas that ended applies have left starting.

    `runs` as in `_Creations`. Where Ray's actors cannot be read, a run stays as its log has it.
    """
    left = [_left_starting(log) if _is_over(job) else {} for job, log in zip(shown, logs, strict=True)]
    creations = _Creations(client, fleet, runs)
    creations.read([job for job, rows in zip(shown, left, strict=True) if rows])
    return [replace(log, later=dict(_later(job, log, rows, creations)))
            for job, log, rows in zip(shown, logs, left, strict=True)]


class _Creations:
    """What became of the replicas that runs have created; each run is asked about once.

    `runs` = all runs, newest first; None = they are listed if needed.
    """

    def __init__(self, client: DashboardClient, fleet: str | None, runs: Sequence[Job] | None) -> None:
        self._client, self._fleet, self._runs = client, fleet, runs
        self._by_run: dict[str, Mapping[tuple[str, int], Became] | None] = {}

    def read(self, jobs: Sequence[Job]) -> None:
        """Ask about these runs, in parallel."""
        for job, created in zip(jobs, ask_all(self._ask, jobs), strict=True):
            self._by_run[job.submission_id] = created

    def of(self, job: Job, row: ReplicaOutcome) -> Became | None:
        """Return what became of a replica that this run has created; None = Ray does not remember that it has."""
        if job.submission_id not in self._by_run:
            self._by_run[job.submission_id] = self._ask(job)
        created = self._by_run[job.submission_id]
        return UNREAD if created is None else created.get((row.model, row.replica_id or 0))

    def awaited_by(self, job: Job, row: ReplicaOutcome) -> Became | None:
        """Return what became of a replica that this run has only waited for: it is from an earlier one."""
        if (became := self.of(job, row)) is not None:
            return became
        self._runs = runs_of(self._client, self._fleet) if self._runs is None else self._runs
        earlier = islice((run for run in self._runs if _is_over(run) and _is_of_same_fleet(run, job)
                          and run.start_time_ms <= job.start_time_ms), LOOKED_BACK)
        return next((became for run in earlier if (became := self.of(run, row))), None)

    def _ask(self, job: Job) -> Mapping[tuple[str, int], Became] | None:
        try:
            return list_created(self._client, job.driver_id)
        except InventoryError:
            return None


def _later(
    job: Job, log: RunLog, rows: Mapping[tuple[str, int | None], ReplicaOutcome], creations: _Creations
) -> Iterator[tuple[tuple[str, int | None], ReplicaOutcome]]:
    """Yield the outcome of each of these replicas that is not starting anymore, or is no longer known."""
    began = _named_by(log, "replicaCreated")
    for key, row in rows.items():
        became = creations.of(job, row) if key in began else creations.awaited_by(job, row)
        if became is None or became.outcome != "starting":
            yield key, _row_later(row, became, began.get(key))


def _left_starting(log: RunLog) -> dict[tuple[str, int | None], ReplicaOutcome]:
    """Return the replicas that a run has left starting, without reloads: Ray does not know how these end."""
    reloads = _named_by(log, "replicaReloading")
    return {key: row for row in outcomes_of(log) if row.outcome == "starting" and row.replica_id is not None
            and (key := (row.model, row.replica_id)) not in reloads}


def _named_by(log: RunLog, kind: str) -> dict[tuple[str, int | None], str]:
    """Return the replicas that events of one kind name, each with the time of the last one."""
    named = [(event.model_extra or {}, event.time) for event in log.events if event.type == kind]
    return {(fields["model"], fields["replicaId"]): time for fields, time in named
            if isinstance(fields.get("model"), str) and isinstance(fields.get("replicaId"), int)}


def _is_over(job: Job) -> bool:
    return job.ended and bool(job.driver_id) and job.metadata.get("verb") == "apply"


def _is_of_same_fleet(run: Job, other: Job) -> bool:
    return all(run.metadata.get(key) == other.metadata.get(key) for key in ("fleet", "namespace"))


def _row_later(row: ReplicaOutcome, became: Became | None, began: str | None) -> ReplicaOutcome:
    """Return the outcome of a replica that was starting when its run ended; `became` None = no longer known."""
    if became is None:
        return row.model_copy(update={"code": NO_LONGER_KNOWN, "message": (
            "it was starting when the run ended; the cluster no longer knows what became of it")})
    took = None
    with suppress(TypeError, ValueError):  # a log, and a repr, may hold anything
        took = (as_datetime(became.ready_at or "") - as_datetime(began or "")).total_seconds()
    return row.model_copy(update={"outcome": became.outcome, "code": became.code, "message": became.message,
                                  "seconds": took if took is not None and took >= 0 else None})


def _entry(job: Job, log: RunLog) -> HistoryEntry:
    status, end_ms = status_of(job, log), _end_ms(job, log)
    counts: Counter[str] = Counter()
    for row in outcomes_of(log):
        counts["forgotten" if row.code == NO_LONGER_KNOWN else row.outcome] += row.replicas
    return HistoryEntry.model_validate({
        "id": job.submission_id, "state": status.state, "code": status.code, "message": status.message,
        "startedAt": moment_of_ms(job.start_time_ms), "endedAt": moment_of_ms(end_ms),
        "seconds": (end_ms - job.start_time_ms) / 1000 if 0 < job.start_time_ms <= end_ms else None,
        "forgotten": counts.pop("forgotten", 0), "counts": dict(counts), **_submitted(job.metadata),
    })


def _submitted(metadata: Mapping[str, str]) -> dict[str, object]:
    """Return the fields of a run that come from its metadata; see `apply/prepare.py`."""
    replicas = named_replicas(metadata)
    texts = ("command", "fleet", "namespace", "who", "run", "toolVersion", "planId", "commit", "branch", "stepOf",
             AGENT)
    return {
        "verb": metadata.get("verb", ""), "dirty": {"true": True, "false": False}.get(metadata.get("dirty", "")),
        "create": number_in(metadata.get("create")), "replicas": replicas,
        "level": metadata["level"] if metadata.get("level") in get_args(Level) else None,
        "replica": replicas[0] if len(replicas) == 1 else None,
        "agentOfThisVersion": metadata[AGENT] == agent_package().sha256 if AGENT in metadata else None,
        **{name: metadata.get(name) for name in texts},
    }


def _end_ms(job: Job, log: RunLog) -> int:
    """Return when the run ended, from its summary if Ray has not noticed the end yet; 0 = not ended."""
    summary = summary_of(log)
    if job.end_time_ms or summary is None:
        return job.end_time_ms
    try:
        end = as_datetime(summary.time)
    except ValueError:
        return 0
    return max(job.start_time_ms, int(end.timestamp() * 1000)) if end.tzinfo else 0


def _files(events: Sequence[Event]) -> list[FleetSource]:
    accepted: dict[str, Any] = next((event.model_extra or {} for event in events if event.type == "planAccepted"), {})
    try:
        return _FILES.validate_python(accepted.get("files", []))
    except ValidationError:
        return []


@dataclass(frozen=True, slots=True)
class Recorded:
    """One model as an apply recorded it. `whole` = no value of the shape is masked, as its hash proves."""

    shape: Mapping[str, Any]
    model: RecordedModel
    job: str
    whole: bool


def find_recorded(
    client: DashboardClient, fleet: str, wanted: Collection[SpecOf], *, all_runs: bool = False
) -> dict[SpecOf, Recorded]:
    """Return the record of the newest apply that created or reloaded each of `wanted`, if there is one.

    Stops reading logs when all are found. `all_runs` = wait for the list of jobs, however long it is: replicas may be
    older than the newest runs. Raises InventoryError if no run is known.
    """
    newest: dict[SpecOf, Recorded] = {}
    applies = filter(may_record, (runs_of if all_runs else recent_runs)(client, fleet))
    while len(newest) < len(wanted) and (batch := list(islice(applies, BATCH))):
        for job, (text, _) in zip(batch, _texts(client, batch), strict=True):
            for recorded in recorded_in(text or "", job.submission_id):
                if (key := (recorded.model.key, recorded.model.spec_hash)) in wanted:
                    newest.setdefault(key, recorded)
    return newest


def may_record(job: Job) -> bool:
    """Return whether the log of a run may have the record of a model: it created or reloaded replicas."""
    return job.metadata.get("verb") == "apply" and (
        job.metadata.get("create") != "0" or bool(job.metadata.keys() & {"reload", "reloads"}))


def recorded_in(log: str, job: str) -> Iterator[Recorded]:
    """Yield the models recorded in a log. Skips a shape that does not match its hash, unless it has masked values."""
    for record in plans_in(log):
        try:
            hashes = {key: hash_of_shape(shape) for key, shape in record.shapes.items()}
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
            continue
        for model in record.models:
            shape = record.shapes.get(model.spec_hash)
            if shape is None:
                continue
            whole = hashes[model.spec_hash] == model.spec_hash
            if whole or MASK in json.dumps(shape):
                yield Recorded(shape, model, job, whole)


def list_created(client: DashboardClient, driver_id: str) -> dict[tuple[str, int], Became]:
    """Return what became of the replicas that a run has created, by model and id, as far as Ray remembers them.

    `driver_id` = the run's process. Raises InventoryError also if the list is incomplete.
    """
    listing = list_rows(client, "actors", _became, filters=[("job_id", "=", driver_id)])
    if listing.losses:
        raise InventoryError("; ".join(listing.losses))
    tried_again = {actor_id for _, _, _, tries in listing.rows for actor_id in tries}
    return {key: became for key, actor_id, became, _ in listing.rows if actor_id not in tried_again}


def _became(row: Row) -> tuple[tuple[str, int], str | None, Became, set[str]] | None:
    """Return the replica of an actor's row, the actor, what became of it, and the actors of its earlier tries."""
    name, cause = parse_actor_name(str(row.get("name"))), object_of(row.get("death_cause"))
    if name is None or name.replica_id is None or name.level != "HOT":
        return None
    marks, texts = read_marks(text_of(row.get("repr_name")) or ""), list(death_messages(cause))
    lives = row.get("state") in LIVE_STATES
    record = packed_failure(texts) or marks.failed
    if marks.ready_at:
        ready_at = None if integer_of(row.get("num_restarts")) else marks.ready_at
        now = "" if row.get("state") == "ALIVE" else "it is restarting" if lives else "it has ended since"
        became = Became("ready", message=now, ready_at=ready_at)
    elif lives:
        became = Became("starting")
    elif record or failed_itself(cause):
        became = Became("failed", text_of(record.get("code")) or "REPLICA_DIED", text_of(record.get("message")) or next(
            (line for text in texts for line in text.splitlines()), ""))
    else:
        became = Became("gone", message="it was ended before it was ready")
    tries = {*texts_of(record.get("earlierTries")), *marks.earlier_tries}
    return (name.model, name.replica_id), text_of(row.get("actor_id")), became, tries
