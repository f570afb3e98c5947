"""One apply on the client's side: submit the agent with the plan, relay its events, return its summary.

Closing the client does not stop the apply. The first interrupt stops the job, which starts nothing more and reports;
the second one detaches from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fleetctl.apply import jobs
from fleetctl.apply.follow import APPLY, Follower
from fleetctl.apply.history import recent_runs, runs_of
from fleetctl.apply.prepare import ApplyOptions, ApplyTask, apply_request
from fleetctl.apply.record import Starter, apply_metadata
from fleetctl.apply.replan import WANTED, Replanner, answer_agent
from fleetctl.documents.events import Event, RunSummary
from fleetctl.errors import WaitTimeout
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import Job

Relay = Callable[[Event], None]
STATUS_HINT = "`fleetctl status` shows what runs"


class Detached(Exception):  # not an error: the user has detached from a running apply
    """The client detaches; `stopped` = the job was asked to stop before, otherwise it continues."""

    def __init__(self, submission_id: str, *, stopped: bool) -> None:
        super().__init__(submission_id)
        self.submission_id = submission_id
        self.stopped = stopped


@dataclass(frozen=True, slots=True)
class Started:
    """An agent run that can be followed. `replanner` plans again for refused replicas; None = no planning again."""

    client: DashboardClient
    submission_id: str
    replanner: Replanner | None = None


def start_apply(
    task: ApplyTask, submission_id: str, starter: Starter, options: ApplyOptions, patience: jobs.Patience | None = None
) -> Started:
    """Submit the agent with the plan; raises ApplyError if the cluster refuses it."""
    plan = task.plan
    request = apply_request(plan, submission_id, starter.name, options, may_replan=task.replanner is not None)
    jobs.submit(task.client, submission_id, "apply", request, namespace=plan.fleet.namespace, patience=patience,
                metadata=apply_metadata(plan, starter),
                follow_up=f"`fleetctl apply --attach {submission_id}` follows it if it runs; otherwise apply again")
    return Started(task.client, submission_id, task.replanner)


def follow(started: Started, relay: Relay, *, wait_timeout_s: float | None = None,
           announce: Callable[[], None] = lambda: None, pause: Callable[[], None] = lambda: None) -> RunSummary:
    """Relay each event once, up to the summary, and return it. An interrupt stops the job, and relaying continues.

    The first interrupt calls `announce`, then `pause`; during the pause a second one detaches without stopping the job.
    Raises ApplyError if the agent died or could not be stopped, WaitTimeout, and Detached at the second interrupt or if
    the job does not react to the first.
    """
    def receive(event: Event) -> None:
        relay(event)
        if event.type == WANTED and started.replanner is not None:
            answer_agent(started.client, event, started.replanner)

    follower = Follower(started.client, started.submission_id, APPLY, wait_timeout_s=wait_timeout_s)
    with suppress(KeyboardInterrupt):
        return follower.summary(receive)
    stopped = False
    try:
        announce()
        pause()
        stopped = True
        return follower.stop(receive, STATUS_HINT)
    except (KeyboardInterrupt, WaitTimeout):
        raise Detached(started.submission_id, stopped=stopped) from None


def running(client: DashboardClient, fleet: str | None) -> list[Job]:
    """Return the running applies of one fleet or of all, oldest first.

    An apply that Ray is about to start, or one of an earlier release, has no record: only the list of jobs has it.
    """
    return _running(recent_runs(client, fleet)) or _running(runs_of(client, fleet))


def _running(runs: Sequence[Job]) -> list[Job]:
    return [job for job in reversed(runs) if not job.ended and job.metadata.get("verb") == "apply"]
