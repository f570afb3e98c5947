"""One apply from the client's side: submit the agent with the plan, relay its events, return its summary.

Closing the client does not stop the apply. The first interrupt stops the job (it begins nothing more and reports), the
second only lets go of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleetctl.apply import jobs
from fleetctl.apply.follow import APPLY, Follower
from fleetctl.apply.outcome import INTERRUPTED
from fleetctl.apply.package import job_package
from fleetctl.apply.record import Starter, apply_metadata
from fleetctl.apply.request import ApplyOptions, apply_request
from fleetctl.documents.events import Event, RunSummary
from fleetctl.documents.plan import Plan
from fleetctl.errors import ApplyError, WaitTimeout
from fleetctl.inventory.client import DashboardClient

Relay = Callable[[Event], None]
STOP_PATIENCE_S = 10.0
UNREPORTED = "the apply was stopped and gave no report; `fleetctl status` shows what runs"


class Detached(Exception):  # not an error: the person let go of a running apply
    """The client lets go; the job `submission_id` is left to itself."""

    def __init__(self, submission_id: str) -> None:
        super().__init__(submission_id)
        self.submission_id = submission_id


@dataclass(frozen=True, slots=True)
class Started:
    """A run of the agent that can be followed."""

    client: DashboardClient
    submission_id: str


def start_apply(
    client: DashboardClient, plan: Plan, submission_id: str, starter: Starter, options: ApplyOptions
) -> Started:
    """Submit the agent with `plan`; raises ApplyError when the cluster does not take it."""
    request = apply_request(plan, submission_id, starter.name, options)
    jobs.submit(client, submission_id, "apply", job_package(request), apply_metadata(plan, starter))
    return Started(client, submission_id)


def follow(started: Started, relay: Relay, *, wait_timeout_s: float | None = None,
           on_interrupt: Callable[[], None] = lambda: None) -> RunSummary:
    """Relay events, each once, until the summary and return it; an interrupt stops the job and goes on relaying.

    Raises ApplyError when the agent died or could not be stopped, WaitTimeout, and Detached at the second interrupt or
    when the job does not heed the first.
    """
    follower = Follower(started.client, started.submission_id, APPLY, wait_timeout_s=wait_timeout_s)
    try:
        return _drain(follower, relay)
    except KeyboardInterrupt:
        pass
    try:
        on_interrupt()
        jobs.stop(started.client, started.submission_id)
        follower.wait_at_most(STOP_PATIENCE_S)
        return _drain_stopped(follower, relay)
    except (KeyboardInterrupt, WaitTimeout):
        raise Detached(started.submission_id) from None


def _drain(follower: Follower, relay: Relay) -> RunSummary:
    for event in follower.events():
        relay(event)
        if isinstance(event, RunSummary):
            return event
    raise ApplyError("the agent's events ended without a summary")


def _drain_stopped(follower: Follower, relay: Relay) -> RunSummary:
    try:
        return _drain(follower, relay)
    except ApplyError:  # stopped before it began, or killed before it could report
        return RunSummary(seq=0, time="", message=UNREPORTED, exit_code=INTERRUPTED, interrupted=True)


def running(client: DashboardClient, fleet: str | None) -> list[jobs.Job]:
    """Return the applies that are under way, of one fleet or of all, oldest first."""
    return [job for job in jobs.ours(client)
            if not job.ended and job.metadata.get("verb") == "apply" and fleet in (None, job.metadata.get("fleet"))]
