"""The second half of `fleetctl apply`: start it (or find the one that runs), follow it, show how it ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ApplyError, UsageError

if TYPE_CHECKING:
    from fleetctl.apply.request import ApplyOptions
    from fleetctl.apply.run import Started
    from fleetctl.apply.session import ApplyTask
    from fleetctl.documents.events import Event, ReplicaOutcome, RunSummary
    from fleetctl.documents.plan import Plan

INTERRUPTED = 130


def carry_out(task: ApplyTask, options: ApplyOptions, output_format: str, wait_timeout_s: float | None) -> int:
    """Apply the plan and return the exit code; without anything to do nothing is submitted."""
    from fleetctl.apply.run import start_apply
    from fleetctl.cli.console import say
    from fleetctl.cli.who import new_job_id, who

    if not task.has_work:
        return _finish(task.plan, None, output_format)
    job = new_job_id("apply")
    started = start_apply(task.client, task.plan, job, who(), options, task.startup_timeouts_s)
    say("job", f"{job}; closing this command does not stop it, `fleetctl apply --attach` follows it again")
    return _follow(started, task.plan, output_format, wait_timeout_s)


def attach_to(
    job: str | None, files: Sequence[str] | None, address: str | None, output_format: str, wait_timeout_s: float | None
) -> int:
    """Follow a running apply: the one named, or the only one there is (of the fleet in `files`, where given)."""
    from fleetctl.apply.run import Started, running
    from fleetctl.cli.connect import open_dashboard, read_stdin

    fleet = None
    if files:
        from fleetctl.spec.load import load_fleet

        fleet = load_fleet(list(files), stdin=read_stdin)
    client = open_dashboard(address, fleet.cluster if fleet else None)
    if job is None:
        found = running(client, fleet.name if fleet else None)
        if not found:
            raise ApplyError("no apply is running", hint="`fleetctl status` shows what runs")
        if len(found) > 1:
            listed = ", ".join(f"{one.submission_id} (fleet {one.metadata.get('fleet')})" for one in found)
            raise UsageError(f"several applies are running: {listed}", hint="name one: fleetctl apply --attach JOB")
        job = found[0].submission_id
    return _follow(Started(client, job), None, output_format, wait_timeout_s)


def _follow(started: Started, plan: Plan | None, output_format: str, wait_timeout_s: float | None) -> int:
    from fleetctl.apply.run import Detached, follow, raise_if_refused
    from fleetctl.cli.console import say

    def interrupted() -> None:
        say("interrupted", "stopping: nothing more is begun, what was created goes on; Ctrl-C again lets go")

    progress = _progress(plan, output_format)
    try:
        with progress as shown:
            summary = follow(started, shown.relay, wait_timeout_s=wait_timeout_s, on_interrupt=interrupted)
    except Detached:
        job = started.submission_id
        say("note", f"let go of job {job}; `fleetctl apply --attach {job}` follows it")
        return INTERRUPTED
    raise_if_refused(summary)
    return _finish(plan, summary, output_format)


def _progress(plan: Plan | None, output_format: str) -> AbstractContextManager[Any]:
    from fleetctl.cli.console import message_console
    from fleetctl.render.apply_progress import LiveProgress, PlainProgress

    console = message_console()
    if output_format == "jsonl":
        return _EventLines()
    return LiveProgress(console, plan) if console.is_terminal else PlainProgress(console)


class _EventLines:
    """Events as they come, one JSON object a line on standard output; the summary is written by `_finish`."""

    def __enter__(self) -> _EventLines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def relay(self, event: Event) -> None:
        if event.type != "runSummary":
            _write_json_line(event)


def _write_json_line(event: Event) -> None:
    from fleetctl.cli.console import write_result

    write_result(event.model_dump_json(by_alias=True, exclude_none=True) + "\n")


def _finish(plan: Plan | None, summary: RunSummary | None, output_format: str) -> int:
    """Show the result in the asked form and return the code that text, JSON and the process share."""
    from fleetctl.apply.outcome import all_outcomes, final_exit_code

    outcomes = all_outcomes(plan, summary)
    code = final_exit_code(outcomes)
    if summary is not None and summary.interrupted:
        code = INTERRUPTED
    if output_format == "table":
        from fleetctl.cli.console import result_console
        from fleetctl.render.outcome_table import render_outcomes

        render_outcomes(outcomes, result_console())
    else:
        _write_json_line(_summary(plan, summary, outcomes, code))
    sys.stdout.flush()
    return code


def _summary(
    plan: Plan | None, summary: RunSummary | None, outcomes: Sequence[ReplicaOutcome], code: int
) -> RunSummary:
    """Return the agent's summary with what the plan had blocked added, so that one line tells the whole result."""
    from fleetctl.cli.connect import now_text
    from fleetctl.documents.events import RunSummary
    from fleetctl.render.outcome_table import totals

    base: dict[str, Any] = summary.model_dump(by_alias=True) if summary else {"seq": 0, "time": now_text()}
    if plan is not None:
        base["planId"] = plan.plan_id
    base |= {"type": "runSummary", "message": totals(outcomes), "exitCode": code,
             "level": "info" if code == 0 else "warning",
             "outcomes": [row.model_dump(by_alias=True, exclude_none=True) for row in outcomes]}
    return RunSummary.model_validate(base)
