"""One apply from the client's side: submit the agent with the plan, relay its events, return its summary.

Closing the client does not stop the apply. The first interrupt stops the job (it begins nothing more and reports), the
second only lets go of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleetctl.apply import jobs
from fleetctl.apply.follow import Follower
from fleetctl.apply.package import job_package
from fleetctl.apply.request import ApplyOptions, apply_request
from fleetctl.apply.used import used_by
from fleetctl.documents.events import Event, RunSummary
from fleetctl.documents.plan import Plan
from fleetctl.errors import ApplyError, LockHeld, WaitTimeout
from fleetctl.inventory.client import DashboardClient

Relay = Callable[[Event], None]
STOP_PATIENCE_S = 10.0
UNREPORTED = "the apply was stopped and gave no report; `fleetctl status` shows what runs"


class Detached(Exception):  # noqa: N818  not an error: the person let go of a running apply
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
    client: DashboardClient, plan: Plan, submission_id: str, who: str, options: ApplyOptions,
    startup_timeouts_s: Mapping[str, float],
) -> Started:
    """Submit the agent with `plan`; raises ApplyError when the cluster does not take it."""
    metadata = {"fleet": plan.fleet.name, "planId": plan.plan_id, "who": who}
    if plan.fleet.git:
        metadata["commit"] = plan.fleet.git.commit
    request = apply_request(plan, submission_id, who, options, startup_timeouts_s)
    jobs.submit(client, submission_id, "apply", job_package(request), metadata)
    return Started(client, submission_id)


def follow(started: Started, relay: Relay, *, wait_timeout_s: float | None = None,
           on_interrupt: Callable[[], None] = lambda: None) -> RunSummary:
    """Relay events until the summary and return it.

    Raises ApplyError when the agent died, WaitTimeout, and Detached at the second interrupt or when the job does not
    heed the first.
    """
    try:
        return _drain(Follower(started.client, started.submission_id, wait_timeout_s=wait_timeout_s), relay)
    except KeyboardInterrupt:
        on_interrupt()
    try:
        jobs.stop(started.client, started.submission_id)
        return _drain(Follower(started.client, started.submission_id, wait_timeout_s=STOP_PATIENCE_S), lambda _: None)
    except (KeyboardInterrupt, WaitTimeout):
        raise Detached(started.submission_id) from None
    except ApplyError:  # stopped before it began, or killed before it could report
        return RunSummary(seq=0, time="", message=UNREPORTED, exit_code=3, interrupted=True)


def _drain(follower: Follower, relay: Relay) -> RunSummary:
    for event in follower.events():
        relay(event)
        if isinstance(event, RunSummary):
            return event
    raise ApplyError("the agent's events ended without a summary")


def raise_if_refused(summary: RunSummary) -> None:
    """Raise LockHeld or PlanUsed when the agent ended before any action, ApplyError when it could not even begin."""
    extra = summary.model_extra or {}
    if summary.exit_code == 5:
        raise _lock_held(summary.message, extra.get("holder") or {})
    if summary.exit_code == 6:
        raise used_by(str(extra.get("usedBy", "unknown")))
    if summary.exit_code == 1:
        raise ApplyError(summary.message)


def _lock_held(message: str, holder: Mapping[str, str]) -> LockHeld:
    who = f", started by {holder['who']}" if holder.get("who") else ""
    ways = "wait for it with --lock-timeout 10m, or follow it with `fleetctl apply --attach`"
    if job := holder.get("job"):
        ways = (f"wait for it with --lock-timeout 10m, follow it with `fleetctl apply --attach {job}`, "
                f"or stop it with `ray job stop {job}`")
    return LockHeld(f"{message}{who}", hint=ways)


def running(client: DashboardClient, fleet: str | None) -> list[jobs.Job]:
    """Return the applies that are under way, of one fleet or of all, oldest first."""
    return [job for job in jobs.ours(client)
            if not job.ended and job.metadata.get("verb") == "apply" and fleet in (None, job.metadata.get("fleet"))]
