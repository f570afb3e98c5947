"""One apply from the client's side: submit the agent with the plan, relay its events, return its summary.

Closing the client does not stop the apply. The first interrupt stops the job (it starts nothing more and reports), the
second detaches from it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from fleetctl.apply import jobs
from fleetctl.apply.follow import APPLY, Follower
from fleetctl.apply.outcome import INTERRUPTED
from fleetctl.apply.prepare import ApplyOptions, ApplyTask, apply_request
from fleetctl.apply.record import Starter, apply_metadata
from fleetctl.apply.replan import WANTED, Replanner, answer_agent
from fleetctl.documents.events import Event, RunSummary
from fleetctl.errors import ApplyError, WaitTimeout
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import Job, ours

Relay = Callable[[Event], None]
STOP_PATIENCE_S = 10.0
UNREPORTED = "the apply was stopped and gave no report; `fleetctl status` shows what runs"


class Detached(Exception):  # not an error: the person has detached from a running apply
    """The client detaches; `stopped` = the job was asked to stop before, else it continues."""

    def __init__(self, submission_id: str, *, stopped: bool) -> None:
        super().__init__(submission_id)
        self.submission_id = submission_id
        self.stopped = stopped


@dataclass(frozen=True, slots=True)
class Started:
    """A run of the agent that can be followed. `replanner` plans around what its agent finds; None = none does."""

    client: DashboardClient
    submission_id: str
    replanner: Replanner | None = None


def start_apply(
    task: ApplyTask, submission_id: str, starter: Starter, options: ApplyOptions, patience: jobs.Patience | None = None
) -> Started:
    """Submit the agent with the plan; raises ApplyError when the cluster refuses it."""
    plan = task.plan
    request = apply_request(plan, submission_id, starter.name, options, may_replan=task.replanner is not None)
    wanted = jobs.Submission(
        submission_id, "apply", plan.fleet.namespace, apply_metadata(plan, starter),
        f"`fleetctl apply --attach {submission_id}` follows it if it runs; else apply again")
    jobs.submit(task.client, wanted, request, patience)
    return Started(task.client, submission_id, task.replanner)


@dataclass(frozen=True, slots=True)
class Interrupts:
    """What happens at the first interrupt: `pause` returns after a moment in which a second one only detaches."""

    announce: Callable[[], None] = lambda: None
    pause: Callable[[], None] = lambda: None


def follow(started: Started, relay: Relay, *, wait_timeout_s: float | None = None,
           interrupts: Interrupts | None = None) -> RunSummary:
    """Relay events, each once, until the summary and return it; an interrupt stops the job; relaying continues.

    Raises ApplyError when the agent died or could not be stopped, WaitTimeout, and Detached at the second interrupt or
    when the job does not react to the first.
    """
    follower = Follower(started.client, started.submission_id, APPLY, wait_timeout_s=wait_timeout_s)
    with suppress(KeyboardInterrupt):
        return _drain(started, follower, relay)
    interrupts, stopped = interrupts or Interrupts(), False
    try:
        interrupts.announce()
        interrupts.pause()
        stopped = True
        return _stop(started, follower, relay)
    except (KeyboardInterrupt, WaitTimeout):
        raise Detached(started.submission_id, stopped=stopped) from None


def stop_apply(started: Started, relay: Relay) -> RunSummary:
    """Stop an apply, relay its events from the first on, and return its report; what it created continues.

    Raises ApplyError when it could not be stopped, WaitTimeout when it does not end.
    """
    return _stop(started, Follower(started.client, started.submission_id, APPLY), relay)


def _stop(started: Started, follower: Follower, relay: Relay) -> RunSummary:
    jobs.stop(started.client, started.submission_id)
    follower.wait_at_most(STOP_PATIENCE_S)
    try:
        return _drain(started, follower, relay)
    except ApplyError:  # stopped before it began, or killed before it could report
        return RunSummary(seq=0, time="", message=UNREPORTED, exit_code=INTERRUPTED, interrupted=True)


def _drain(started: Started, follower: Follower, relay: Relay) -> RunSummary:
    for event in follower.events():
        relay(event)
        if isinstance(event, RunSummary):
            return event
        if event.type == WANTED and started.replanner is not None:
            answer_agent(started.client, event, started.replanner)
    raise ApplyError("the agent's events ended without a summary")


def running(client: DashboardClient, fleet: str | None) -> list[Job]:
    """Return the running applies, of one fleet or of all, oldest first."""
    return [job for job in ours(client)
            if not job.ended and job.metadata.get("verb") == "apply" and fleet in (None, job.metadata.get("fleet"))]
