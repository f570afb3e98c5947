"""The second half of `fleetctl apply`: start a run or find a running one, follow it, show the result."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from fleetctl.apply.history import find_run
from fleetctl.apply.jobs import Patience
from fleetctl.apply.old_runs import delete_old_runs
from fleetctl.apply.outcome import INTERRUPTED, raise_if_refused
from fleetctl.apply.prepare import ApplyOptions, ApplyTask
from fleetctl.apply.run import Detached, Started, follow, running, start_apply
from fleetctl.cli.apply.output import ApplyOutput, CollectedOutput
from fleetctl.cli.console import message_console, moves, say, working
from fleetctl.cli.identity import new_job_id, starter, verb_of
from fleetctl.documents.events import Event
from fleetctl.documents.quantity import count_of
from fleetctl.errors import ApplyError, UsageError
from fleetctl.inventory.jobs import Job
from fleetctl.render.apply_progress import LiveProgress, PlainProgress
from fleetctl.workflow.cluster import cluster_of, fleet_of
from fleetctl.workflow.dashboard import open_dashboard
from fleetctl.workflow.invocation import Invocation

DETACH_WINDOW_S = 1.0
"""A second Ctrl-C within this time detaches and leaves the apply running."""


def carry_out(task: ApplyTask, options: ApplyOptions, output: ApplyOutput, wait_timeout_s: float | None) -> int:
    """Apply the plan and return the exit code. If there is nothing to do, no job is submitted."""
    if not (task.has_work if options.wait else task.creates):
        return output.finish(None)
    job = new_job_id("apply")
    say("job", f"{job}; it continues if this command is closed")
    say("hint", f"`fleetctl apply --attach {job}` follows it again")
    with working("submitting the apply"):
        started = start_apply(task, job, starter(), options, Patience(report=lambda line: say("note", line)))
    code = _follow(started, output, wait_timeout_s)
    if code != INTERRUPTED and not output.goes_on and not isinstance(output, CollectedOutput):
        with suppress(KeyboardInterrupt):  # the apply has ended, and its result is known
            delete_after(task, set())
    return code


def delete_after(task: ApplyTask, said: set[str]) -> None:
    """Delete old runs after an apply that has ended; never fails. A problem is said once for each `said`."""
    done = delete_old_runs(task.client, task.plan, time.time())
    if done.deleted:
        say("note", f"{count_of(len(done.deleted), 'ended run')} deleted that spec.history does not keep")
    if done.problem and done.problem not in said:
        said.add(done.problem)
        say("note", f"old runs stay in the cluster's list of jobs: {done.problem}; "
                    "`fleetctl prune --runs` deletes them by hand")


def attach_to(
    invocation: Invocation, job: str | None, files: Sequence[str] | None, address: str | None, output: ApplyOutput,
    wait_timeout_s: float | None,
) -> int:
    """Follow the running apply `job` (an id or its beginning), or the only running one (of the fleet in `files`)."""
    fleet = fleet_of(invocation, files)
    with open_dashboard(invocation, address, cluster_of(fleet).address) as client:
        job = (find_run(client, job, None) if job else
               only(running(client, fleet.name if fleet else None), "fleetctl apply --attach JOB")).submission_id
        output.verb = verb_of(job)
        return _follow(Started(client, job), output, wait_timeout_s)


def only(found: Sequence[Job], command: str) -> Job:
    """Return the only running apply. Raises ApplyError for none, UsageError for several, with the `command` to use."""
    if not found:
        raise ApplyError("no apply is running", hint="`fleetctl status` shows what runs")
    if len(found) > 1:
        listed = ", ".join(f"{one.submission_id} (fleet {one.metadata.get('fleet')})" for one in found)
        raise UsageError(f"several applies are running: {listed}", hint=f"name one: {command}")
    return found[0]


def _follow(started: Started, output: ApplyOutput, wait_timeout_s: float | None) -> int:
    job = started.submission_id
    asks = _at_a_terminal()
    try:
        with _display(output) as display:
            def relay(event: Event) -> None:
                output.relay(event)
                if output.format != "jsonl":  # its lines on standard output are already every event
                    display.relay(event)

            summary = follow(started, relay, wait_timeout_s=wait_timeout_s,
                             announce=lambda: display.say("interrupted", _stopping(job, asks=asks)),
                             pause=_wait_for_second_interrupt if asks else lambda: None)
    except Detached as detached:
        state = "which was asked to stop" if detached.stopped else "which continues"
        return output.detach(f"detached from job {job}, {state}; `fleetctl apply --attach {job}` follows it")
    raise_if_refused(summary)
    return output.finish(summary)


def _at_a_terminal() -> bool:
    return sys.stderr.isatty()


def _wait_for_second_interrupt() -> None:
    time.sleep(DETACH_WINDOW_S)


def _stopping(job: str, *, asks: bool) -> str:
    text = "stopping the apply: nothing more is started, created replicas continue"
    return f"{text}; Ctrl-C again within a second detaches from job {job} and leaves it running" if asks else text


def _display(output: ApplyOutput) -> PlainProgress:
    console = message_console()
    live = moves(console.is_terminal) and output.format != "jsonl"
    return LiveProgress(console, output.plan) if live else PlainProgress(console)
