"""How a run of the agent ended, told from its job and its log. Nothing is guessed: what nobody can know is `unknown`.

Pure. The agent writes each line before it does what comes next, so a whole log without a line tells what was not done.
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

NEVER_STARTED = frozenset({
    "JOB_SUPERVISOR_ACTOR_START_FAILURE", "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE", "RUNTIME_ENV_SETUP_FAILURE",
})
"""Ray's errors for a job whose command was not begun."""

FIRST_DEED = {"apply": "lockAcquired", "evict": "replicaEnding"}
"""The line before the first thing a run does; by verb."""


@dataclass(frozen=True, slots=True)
class RunLog:
    """What can be read of a run's log. `whole` = it is the log itself, not the end of it that Ray keeps with the job.

    `problem` says why there is none, where that is known.
    """

    events: tuple[Event, ...] = ()
    whole: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run ended, or how far it is."""

    state: RunState
    message: str
    code: str | None = None


def read_log(text: str | None, job: Job, problem: str = "") -> RunLog:
    """Return the events in a job's log; where the log is gone, those in the piece of it that Ray keeps with the job.

    An empty log is as good as none: Ray serves one when the file is gone.
    """
    if text:
        return RunLog(_events(text), whole=True)
    return RunLog(_events(job.message), problem=problem)


def _events(text: str) -> tuple[Event, ...]:
    return tuple(event for event in map(parse_line, text.split("\n")) if event is not None)


def judge(job: Job, log: RunLog) -> Verdict:
    """Say how the run ended."""
    summary = summary_of(log)
    if summary is not None:
        return _told(summary, idle=_was_idle(job, log))
    if not job.ended:
        return _under_way(job, log)
    if not log.events:
        return _without_log(job, log)
    if _was_idle(job, log):
        return Verdict("refused", f"it ended before it did anything ({job.end_text})", "NOT_BEGUN")
    return Verdict("unknown", f"it ended without a summary ({job.end_text})", "DIED")


def summary_of(log: RunLog) -> RunSummary | None:
    """Return the summary, if the run got as far."""
    return next((event for event in reversed(log.events) if isinstance(event, RunSummary)), None)


def outcomes_of(log: RunLog) -> list[ReplicaOutcome]:
    """Return how it ended for each replica: by the summary, or by what was reported before a run without one ended."""
    summary = summary_of(log)
    if summary is not None:
        return list(summary.outcomes)
    known: dict[tuple[str, int | None], ReplicaOutcome] = {}
    for event in log.events:
        if (row := _reported(event)) is not None:
            known[row.model, row.replica_id] = row
    return list(known.values())


def _told(summary: RunSummary, *, idle: bool) -> Verdict:
    """Judge by the agent's own summary. An eviction has no outcomes, so its code alone tells."""
    if summary.exit_code == LockHeld.exit_code:
        return Verdict("refused", summary.message, "LOCK_HELD")
    if summary.exit_code == PlanUsed.exit_code:
        return Verdict("refused", summary.message, "PLAN_USED")
    if summary.exit_code == ApplyError.exit_code:
        return Verdict("refused", summary.message, "NOT_BEGUN") if idle else Verdict("partial", summary.message)
    if summary.interrupted and not summary.outcomes:
        return Verdict("refused", summary.message, "INTERRUPTED")
    if final_exit_code(summary.outcomes, interrupted=False) == FINE:
        return Verdict("ok", summary.message)
    return Verdict("partial", summary.message, "INTERRUPTED" if summary.interrupted else None)


def _under_way(job: Job, log: RunLog) -> Verdict:
    kinds = {event.type for event in log.events}
    if not log.events:
        return Verdict("running", "the cluster is starting it" if job.status == "PENDING" else "it has not spoken yet")
    if "lockWaiting" in kinds and "lockAcquired" not in kinds:
        return Verdict("running", "it waits for the lock of its fleet", "WAITING")
    done = sum(row.replicas for row in outcomes_of(log) if row.code != "NOT_REPORTED")
    of = f" of {create}" if (create := job.metadata.get("create")) else ""
    return Verdict("running", f"{done}{of} done")


def _without_log(job: Job, log: RunLog) -> Verdict:
    if job.error_type in NEVER_STARTED:
        return Verdict("refused", f"the cluster could not start it ({job.end_text})", "NOT_BEGUN")
    why = log.problem or "its log is empty or gone"
    return Verdict("unknown", f"{why} ({job.end_text})", "LOG_GONE")


def _was_idle(job: Job, log: RunLog) -> bool:
    """Tell whether it is certain that the run did nothing: its log is whole, and there is no line of its first deed."""
    deed = FIRST_DEED.get(job.metadata.get("verb", ""))
    return log.whole and deed is not None and all(event.type != deed for event in log.events)


def _reported(event: Event) -> ReplicaOutcome | None:
    """Return what an event of a replica says of it; one that was only created may be anything by now."""
    if not event.type.startswith("replica"):
        return None
    told = event.model_extra or {}
    if event.type == "replicaCreated":
        told = {**told, "outcome": "starting", "code": "NOT_REPORTED", "message": "created; the rest was not reported"}
    try:
        return ReplicaOutcome.model_validate({"message": _why(event, told), **told})
    except ValidationError:
        return None


def _why(event: Event, told: dict[str, object]) -> str:
    """Return the agent's sentence without what the outcome's other fields say."""
    _, _, why = event.message.partition(f"{told.get('model')}/{told.get('replicaId')}: {told.get('outcome')}")
    return why.partition(": ")[2]
