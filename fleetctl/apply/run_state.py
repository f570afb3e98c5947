"""How an agent run ended, according to its job and its log. Nothing is guessed: anything else is `unknown`.

Pure. The agent logs each action before it acts, so a complete log without the line proves that nothing was done.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from fleetctl.apply.follow import parse_line
from fleetctl.apply.outcome import FINE, final_exit_code
from fleetctl.documents.events import Event, ReplicaOutcome, RunSummary
from fleetctl.documents.history import RunState
from fleetctl.errors import ApplyError, LockHeld, PlanUsed
from fleetctl.inventory.jobs import Job
from fleetctl.inventory.notes import note_text
from fleetctl.inventory.records import NOTES

NEVER_STARTED = frozenset({
    "JOB_SUPERVISOR_ACTOR_START_FAILURE", "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE", "RUNTIME_ENV_SETUP_FAILURE",
})
"""Ray's error types for a job whose command was never started."""

FIRST_ACTION = {"apply": "lockAcquired", "evict": "replicaEnding", "restart": "replicaEnding"}
"""The event before the first action of a run, by verb."""


@dataclass(frozen=True, slots=True)
class RunLog:
    """The readable part of a run's log. `whole` = the complete log, not only its end, which Ray keeps with the job.

    `problem` = why the log is missing, if known.
    """

    events: tuple[Event, ...] = ()
    whole: bool = False
    problem: str = ""


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
        return _from_summary(summary, idle=_was_idle(job, log))
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
    """Return the outcome of each replica, from the summary or, without one, from the events."""
    summary = summary_of(log)
    if summary is not None:
        return list(summary.outcomes)
    known: dict[tuple[str, int | None], ReplicaOutcome] = {}
    for event in log.events:
        if (row := _reported(event)) is not None:
            known[row.model, row.replica_id] = row
    return list(known.values())


def _from_summary(summary: RunSummary, *, idle: bool) -> RunStatus:
    """Return the status according to the agent's summary. An eviction by an older release has no outcomes."""
    if summary.exit_code == LockHeld.exit_code:
        return RunStatus("refused", summary.message, "LOCK_HELD")
    if summary.exit_code == PlanUsed.exit_code:
        return RunStatus("refused", summary.message, "PLAN_USED")
    if summary.exit_code == ApplyError.exit_code:
        return RunStatus("refused", summary.message, "NOT_BEGUN") if idle else RunStatus("partial", summary.message)
    if summary.interrupted and not summary.outcomes:
        return RunStatus("refused", summary.message, "INTERRUPTED")
    if final_exit_code(summary.outcomes, interrupted=False) == FINE:
        return RunStatus("ok", summary.message)
    return RunStatus("partial", summary.message, "INTERRUPTED" if summary.interrupted else None)


def _under_way(job: Job, log: RunLog) -> RunStatus:
    kinds = {event.type for event in log.events}
    if not log.events:
        pending = job.status == "PENDING"
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
