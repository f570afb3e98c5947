"""The second half of `fleetctl apply`: start it (or find the one that runs), follow it, show how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleetctl.cli.apply_output import ApplyFormat, ApplyOutput
from fleetctl.errors import ApplyError, UsageError

if TYPE_CHECKING:
    from fleetctl.apply.jobs import Job
    from fleetctl.apply.prepare import ApplyTask
    from fleetctl.apply.request import ApplyOptions
    from fleetctl.apply.run import Started
    from fleetctl.documents.events import Event


def carry_out(task: ApplyTask, options: ApplyOptions, output: ApplyOutput, wait_timeout_s: float | None) -> int:
    """Apply the plan and return the exit code; without anything to do nothing is submitted."""
    from fleetctl.apply.run import start_apply
    from fleetctl.cli.console import say
    from fleetctl.cli.who import new_job_id, who

    if not task.has_work:
        return output.finish(None)
    job = new_job_id("apply")
    started = start_apply(task.client, task.plan, job, who(), options)
    say("job", f"{job}; closing this command does not stop it, `fleetctl apply --attach` follows it again")
    return _follow(started, output, wait_timeout_s)


def attach_to(
    job: str | None, files: Sequence[str] | None, address: str | None, output: ApplyOutput,
    wait_timeout_s: float | None,
) -> int:
    """Follow a running apply: the one named, or the only one there is (of the fleet in `files`, where given)."""
    from fleetctl.apply.run import Started, running
    from fleetctl.cli.connect import fleet_of, open_dashboard

    fleet = fleet_of(files)
    with open_dashboard(address, fleet.cluster.address if fleet else None) as client:
        job = job or _only(running(client, fleet.name if fleet else None))
        return _follow(Started(client, job), output, wait_timeout_s)


def _only(found: Sequence[Job]) -> str:
    if not found:
        raise ApplyError("no apply is running", hint="`fleetctl status` shows what runs")
    if len(found) > 1:
        listed = ", ".join(f"{one.submission_id} (fleet {one.metadata.get('fleet')})" for one in found)
        raise UsageError(f"several applies are running: {listed}", hint="name one: fleetctl apply --attach JOB")
    return found[0].submission_id


def _follow(started: Started, output: ApplyOutput, wait_timeout_s: float | None) -> int:
    from fleetctl.apply.outcome import raise_if_refused
    from fleetctl.apply.run import Detached, follow
    from fleetctl.cli.console import say

    def interrupted() -> None:
        say("interrupted", "stopping: nothing more is begun, what was created goes on; Ctrl-C again lets go")

    job = started.submission_id
    try:
        with _display(output) as show:
            def relay(event: Event) -> None:
                output.relay(event)
                show(event)

            summary = follow(started, relay, wait_timeout_s=wait_timeout_s, on_interrupt=interrupted)
    except Detached:
        return output.let_go(f"let go of job {job}; `fleetctl apply --attach {job}` follows it")
    raise_if_refused(summary)
    return output.finish(summary)


@contextmanager
def _display(output: ApplyOutput) -> Iterator[Callable[[Event], None]]:
    """Show progress on standard error, but not beside lines that tell every event."""
    from fleetctl.cli.console import message_console
    from fleetctl.render.apply_progress import LiveProgress, PlainProgress

    if output.format is ApplyFormat.JSONL:
        yield lambda _: None
        return
    console = message_console()
    with LiveProgress(console, output.plan) if console.is_terminal else PlainProgress(console) as shown:
        yield shown.relay
