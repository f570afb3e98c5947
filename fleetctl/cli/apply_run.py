"""One apply, for every command that makes one: the questions before it, the run that is followed, its output.

A script is never asked, and --yes does not accept a new plan in place of a stale one: it was given for the saved one.
In the formats for programs the last line is a `runSummary`, however the run ended; only usage errors have none.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Annotated, Any, Literal

import typer

from fleetctl.apply.history import find_run
from fleetctl.apply.old_runs import delete_old_runs
from fleetctl.apply.outcome import (
    INTERRUPTED,
    PARTIAL,
    all_outcomes,
    final_exit_code,
    no_longer_ready,
    raise_if_refused,
)
from fleetctl.apply.prepare import ApplyOptions, ApplyTask
from fleetctl.apply.run import Detached, Started, follow, running, start_apply
from fleetctl.apply.standby import find_standby
from fleetctl.cli import console
from fleetctl.cli.console import NOTHING_DONE, confirm, moves, say, show_report, working, write_result
from fleetctl.cli.process import now_text
from fleetctl.cli.reporting import Formats, Reports
from fleetctl.cli.verb import new_job_id, patient, starter, verb_of
from fleetctl.cli.waiting import Waiting
from fleetctl.documents.base import FORMAT_VERSION
from fleetctl.documents.events import Event, HistoryRun, ReplicaOutcome, RunSummary
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import count_of
from fleetctl.errors import ApplyError, FleetctlError, PlanStale, UsageError
from fleetctl.inventory.dashboard import Live
from fleetctl.inventory.jobs import Job
from fleetctl.planner.options import file_flags
from fleetctl.planner.policy import refusing
from fleetctl.render.apply_progress import LiveProgress, PlainProgress
from fleetctl.render.report.of_plan import plan_report
from fleetctl.render.report.of_runs import outcomes_report, run_report, totals
from fleetctl.version import __version__
from fleetctl.workflow.cluster import cluster_of, fleet_of
from fleetctl.workflow.dashboard import open_dashboard
from fleetctl.workflow.invocation import Invocation
from fleetctl.workflow.proposal import Proposal, edited_since, plan_again, refuse_by_policy
from fleetctl.workflow.saved_plan import origin_of

DETACH_WINDOW_S = 1.0
"""A second Ctrl-C within this time detaches and leaves the apply running."""
ApplyFormat = Literal["table", "json", "jsonl"]

FormatOption = Annotated[
    ApplyFormat, typer.Option("--format", help="Output format; json is the result, jsonl every event and the result.")
]


class ApplyOutput:
    """Standard output of one apply. `plan` is set once it is known, `outcomes` once the apply has ended.

    While `goes_on` is set, more runs follow: the outcomes of a run are kept for the result of the last one.
    """

    def __init__(self, chosen: ApplyFormat) -> None:
        self.format = chosen
        self.verb = "apply"
        self.plan: Plan | None = None
        self.outcomes: list[ReplicaOutcome] = []
        self.goes_on = False
        self.no_longer_ready: Callable[[], Sequence[ReplicaOutcome]] = tuple
        self._before: list[ReplicaOutcome] = []
        self._last_seq = -1
        self._agents: RunSummary | None = None
        self.waiting = Waiting(self._show_waiting)

    @contextmanager
    def ends_with_summary(self) -> Iterator[None]:
        """Write the last line for an error, too, and re-raise the error. Meanwhile say at times what is awaited."""
        with self.waiting:
            try:
                yield
            except FleetctlError as error:
                if not isinstance(error, UsageError) or self._last_seq >= 0:
                    self._show_before()
                    message = "; ".join([error.message, *error.listed])  # one line for programs
                    self._write_last(message, error.exit_code, self._before, level="error")
                raise

    def relay(self, event: Event) -> None:
        """Write one event of the agent; its summary is kept for `finish` or an error."""
        self.waiting.learn(event)
        if event.type == "nodesNotRequested":
            self.goes_on = False
        if isinstance(event, RunSummary):
            self._agents = event
        elif self.format == "jsonl" and not (event.type == "version" and self._last_seq >= 0):
            self._write(event.model_copy(update={"seq": max(event.seq, self._last_seq + 1)}))

    def finish(self, summary: RunSummary | None, *, waited: bool = True) -> int:
        """Show the result in the chosen format and return its exit code; `summary` None = nothing was submitted.

        `waited` = it would have waited for readiness.
        """
        self._agents = summary
        interrupted = summary is not None and summary.interrupted
        self.goes_on = self.goes_on and not interrupted
        late = () if interrupted or self.goes_on else self.no_longer_ready()
        now = {(row.model, row.replica_id) for row in late}
        outcomes = self.outcomes = [*(row for row in (*self._before, *all_outcomes(self.plan, summary))
                                      if (row.model, row.replica_id) not in now), *late]
        if self.goes_on:
            self._before = [row for row in outcomes if row.outcome != "blocked"]
            return PARTIAL
        code = final_exit_code(outcomes, interrupted=interrupted, waited=waited if summary is None else summary.waited)
        # an interrupted run may have left no outcomes to count
        note = summary.message if summary is not None and interrupted and not outcomes else None
        if self.format == "table":
            self._show(outcomes, note, interrupted=interrupted)
        self._write_last(note or totals(outcomes, interrupted=interrupted, verb=self.verb), code, outcomes)
        return code

    def end(self, outcomes: Sequence[ReplicaOutcome], code: int, note: str = "") -> int:
        """Show the result of a verb of several runs, whose events were relayed; returns its exit code `code`."""
        self.outcomes, interrupted = list(outcomes), code == INTERRUPTED
        if self.format == "table" and outcomes:
            self._show(outcomes, None, interrupted=interrupted)
        self._agents = None
        self._write_last(note or totals(outcomes, interrupted=interrupted, verb=self.verb), code, outcomes)
        return code

    def report_to(self, reports: Reports, code: int, fleet: str = "") -> None:
        """Report the run, which ended with `code`, as `history show` has it; `fleet` = its name if there is no plan."""
        plan = self.plan
        name, git = (plan.fleet.name, plan.fleet.git) if plan else (fleet, None)
        conclusion = totals(self.outcomes, interrupted=code == INTERRUPTED, verb=self.verb)
        report = run_report(HistoryRun(
            id=f"{self.verb}:{plan.plan_id if plan else name}", verb=self.verb, fleet=name, message=conclusion,
            state="ok" if code == 0 else "partial", plan_id=plan.plan_id if plan else None,
            commit=git.commit if git else None, branch=git.branch if git else None,
            tool_version=plan.tool_version if plan else __version__, files=plan.fleet.files if plan else [],
            outcomes=self.outcomes))
        report = replace(report, identity=f"{self.verb}:{name}", title=f"{self.verb.capitalize()} of fleet {name}",
                         conclusion=conclusion, exit_code=code, facts=report.facts[1:])  # without the id
        formats = Formats(json=str, report=lambda: report, plan_id=plan.plan_id if plan else "",
                          acts=bool(plan.actions) if plan else bool(self.outcomes))
        reports.write(formats)
        reports.publish(formats)

    def show_dry_run(self) -> int:
        """Report what would be created, as skipped outcomes; returns 3 if something does not fit."""
        others = all_outcomes(self.plan, None)
        would = [ReplicaOutcome(model=action.model, replica_id=action.replica_id, outcome="skipped", code="DRY_RUN",
                                nodes=list(dict.fromkeys(member.node for member in action.members)),
                                message="it would be created")
                 for action in (self.plan.starts if self.plan else ())]
        code = final_exit_code(others, interrupted=False, waited=False)
        self._write_last(NOTHING_DONE, code, [*would, *others])
        return code

    def detach(self, note: str) -> int:
        """Report that the client has detached from the run, and return the exit code."""
        self.goes_on = False
        say("note", note)
        self._show_before()
        self._write_last(note, INTERRUPTED, self._before)
        return INTERRUPTED

    def _show_before(self) -> None:
        """Show the outcomes of earlier runs if there is no last run to show them."""
        if self._before and self.format == "table":
            self._show(self._before, None, interrupted=False)

    def _show(self, outcomes: Sequence[ReplicaOutcome], note: str | None, *, interrupted: bool) -> None:
        if note:
            say("note", note)
        else:
            show_report(outcomes_report(outcomes, interrupted=interrupted, verb=self.verb))
        sys.stdout.flush()

    def _write_last(
        self, message: str, code: int, outcomes: Sequence[ReplicaOutcome] = (), *, level: str | None = None
    ) -> None:
        """Write the summary of the whole result, with the other fields of the agent's own summary."""
        self._end_waiting()
        if self.format == "table":
            return
        if self.format == "jsonl":
            self._write_first()
        fields: dict[str, Any] = {"interrupted": code == INTERRUPTED}
        if self._agents is not None:
            fields = self._agents.model_dump(by_alias=True)
        if self.plan is not None:
            fields["planId"] = self.plan.plan_id
        self._write(RunSummary.model_validate(fields | {
            "seq": max(self._last_seq + 1, fields.get("seq", 0)), "time": fields.get("time") or now_text(),
            "type": "runSummary", "level": level or ("info" if code == 0 else "warning"), "message": message,
            "exitCode": code, "outcomes": [row.model_dump(by_alias=True, exclude_none=True) for row in outcomes],
        }))

    def _write_first(self, job: str = "") -> None:
        """Write the first line, unless it is written; `job` = the run's job, if there is one yet."""
        if self._last_seq < 0:
            begun = {"seq": 0, "time": now_text(), "type": "version",
                     "message": f"fleetctl {__version__}, events {FORMAT_VERSION}",
                     "version": FORMAT_VERSION, "toolVersion": __version__, **({"job": job} if job else {})}
            self._write(Event.model_validate(begun | ({"planId": self.plan.plan_id} if self.plan else {})))

    def _write(self, event: Event) -> None:
        with self.waiting.lock:
            write_result(event.model_dump_json(by_alias=True, exclude_none=True) + "\n")
            self._last_seq = event.seq
            self.waiting.spoke()

    def _show_waiting(self, message: str, fields: dict[str, Any]) -> None:
        """Say what is awaited: in a line of the stream, or on standard error where nothing moves."""
        if self.format == "jsonl":
            self._write_first(fields.get("job", ""))
        event = Event(seq=self._last_seq + 1, time=now_text(), type="waiting", message=message, **fields)
        if self.format == "jsonl":
            self._write(event)
        elif not moves(sys.stderr.isatty()):
            PlainProgress(console.message_console()).relay(event)

    def _end_waiting(self) -> None:
        """Say no more what is awaited: the last line follows."""
        self.waiting.end()


class CollectedOutput(ApplyOutput):
    """The output of one step of a larger verb: writes nothing, keeps `outcomes` for the result of the `whole`.

    The whole gets each event of the step, if there is one.
    """

    def __init__(self, plan: Plan, whole: ApplyOutput | None = None) -> None:
        super().__init__(whole.format if whole and whole.format == "jsonl" else "json")
        self.plan = plan
        self._whole = whole
        if whole is not None:
            self.waiting = whole.waiting

    def _end_waiting(self) -> None:
        """Leave it to the whole."""

    def _write(self, event: Event) -> None:
        if self._whole is not None and self.format == "jsonl":
            self._whole.relay(event)


def show_proposal(
    invocation: Invocation, proposal: Proposal, output_format: ApplyFormat, *, force: bool, yes: bool
) -> str:
    """Show the plan, refuse it if policy forbids it, and return the question to ask.

    The question is empty with `yes`, and if there is nothing to create. Raises PolicyRefused.
    """
    plan = proposal.task.plan
    asks = bool(plan.actions or plan.after_pilot or plan.new_nodes) and not yes and not proposal.agreed
    if not proposal.agreed and (output_format == "table" or asks):
        # in the formats for programs the plan is not part of the result: it is shown only to a person who is asked
        shown_on = console.result_console() if output_format == "table" else console.message_console()
        show_report(plan_report(proposal.shown), shown_on)
        shown_on.print()
    elif not proposal.agreed:
        say("warning", *(f"{item.source}: {item.code}: {item.message}" for item in plan.file_warnings))
    refuse_by_policy(invocation, plan, force=force)
    if not asks:
        return ""
    if proposal.task.single_use:
        say("plan", origin_of(plan, Live(proposal.task.client, invocation.now).now()))
    steps = list[str]()
    if plan.summary.create or not (plan.actions or plan.after_pilot or plan.new_nodes):
        steps.append(f"create {count_of(plan.summary.create, 'replica')}")
    if later := plan.summary.after_pilot:
        steps.append(f"{'' if plan.summary.create else 'create '}{later} more once a pilot is ready")
    if plan.summary.reload:
        steps.append(f"reload the weights of {count_of(plan.summary.reload, 'replica')} in place")
    if plan.summary.prefetch:
        steps.append(f"fetch weights onto {count_of(plan.summary.prefetch, 'node')}")
    if plan.new_nodes:
        follow = f", {plan.nodes_after_pilot} more once a pilot is ready" if plan.nodes_after_pilot else ""
        steps.append(f"request {plan.new_nodes} from the autoscaler{follow}")
    question = " and ".join(steps)
    return f"{question[0].upper()}{question[1:]}?"


def offer_new_plan(
    invocation: Invocation, address: str | None, stale: PlanStale, plan: Plan, *, force: bool, yes: bool
) -> Plan:
    """Make a new plan from the files and flags of a stale one, show it, and return it if it is accepted.

    Otherwise, or if no new plan can be made here, raises the PlanStale.
    """
    try:
        fresh = plan_again(invocation, plan, address, force=force)
    except FleetctlError as error:
        say("note", f"no new plan can be made here: {error.message}")
        raise stale from None
    asks = console.may_ask() and not yes and fresh.actions and not refusing(fresh.policy)
    if asks:
        say("refused", stale.message)
        say("moved", *stale.listed)
    say("note", "the plan as it would be made now:")
    show_report(plan_report(fresh), console.message_console())
    say("warning", *(f"{path} has changed since the plan was made" for path in edited_since(plan, fresh)))
    if not asks:
        raise stale
    if not confirm("Apply the new plan instead?", yes=False):
        raise PlanStale("the stale plan was not applied", hint=stale.hint)
    return fresh


def carry_out(task: ApplyTask, options: ApplyOptions, output: ApplyOutput, wait_timeout_s: float | None) -> int:
    """Apply the plan and return the exit code. If there is nothing to do, no job is submitted."""
    if options.wait and not isinstance(output, CollectedOutput):
        output.no_longer_ready = lambda: no_longer_ready(task.plan, task.client, now_text)
    if not (task.has_work if options.wait else task.creates):
        return output.finish(None, waited=options.wait)
    job, standby = new_job_id("apply"), find_standby(task.client, task.plan.fleet)
    _say_job(standby or job)
    output.waiting.now("agent", f"the agent of job {standby or job} to begin", standby or job)
    if not isinstance(output, CollectedOutput):
        output.waiting.begin()
    with working("submitting the apply"):
        started = start_apply(task, job, starter(), options, patient(), standby=standby)
    if started.submission_id != (standby or job):
        _say_job(job)
    code = _follow(started, output, wait_timeout_s)
    if code != INTERRUPTED and not output.goes_on and not isinstance(output, CollectedOutput):
        with suppress(KeyboardInterrupt):  # the apply has ended, and its result is known
            delete_after(task, set())
    return code


def _say_job(job: str) -> None:
    say("job", f"{job}; it continues if this command is closed")
    say("hint", f"`fleetctl apply --attach {job}` follows it again")


def delete_after(task: ApplyTask, said: set[str]) -> None:
    """Delete old runs after an apply that has ended; never fails. A problem is said once for each `said`."""
    done = delete_old_runs(task.client, task.plan, time.time())
    if done.deleted:
        say("note", f"{count_of(len(done.deleted), 'ended run')} deleted that spec.history does not keep")
    if done.problem and done.problem not in said:
        said.add(done.problem)
        say("note", f"old runs stay in the cluster's list of jobs: {done.problem}; "
                    f"`fleetctl prune {file_flags(task.plan.options.files)} --runs` deletes them by hand")


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
        output.waiting.now("agent", f"job {job} to say something", job)
        return _follow(Started(client, job), output, wait_timeout_s)


def only(applies: Sequence[Job], command: str) -> Job:
    """Return the only running apply. Raises ApplyError for none, UsageError for several, with the `command` to use."""
    if not applies:
        raise ApplyError("no apply is running", hint="`fleetctl status` shows what runs")
    if len(applies) > 1:
        listed = ", ".join(f"{job.submission_id} (fleet {job.metadata.get('fleet')})" for job in applies)
        raise UsageError(f"several applies are running: {listed}", hint=f"name one: {command}")
    return applies[0]


def _follow(started: Started, output: ApplyOutput, wait_timeout_s: float | None) -> int:
    job = started.submission_id
    asks, screen = _at_a_terminal(), console.message_console()
    stopping = "stopping the apply: nothing more is started, created replicas continue"
    if asks:
        stopping += f"; Ctrl-C again within a second detaches from job {job} and leaves it running"
    live = moves(screen.is_terminal) and output.format != "jsonl"
    try:
        with LiveProgress(screen, output.plan) if live else PlainProgress(screen) as display:
            def relay(event: Event) -> None:
                output.relay(event)
                if output.format != "jsonl":  # its lines on standard output are already every event
                    display.relay(event)

            summary = follow(started, relay, wait_timeout_s=wait_timeout_s,
                             announce=lambda: display.say("interrupted", stopping),
                             pause=_wait_for_second_interrupt if asks else lambda: None)
    except Detached as detached:
        state = "which was asked to stop" if detached.stopped else "which continues"
        return output.detach(f"detached from job {job}, {state}; `fleetctl apply --attach {job}` follows it")
    raise_if_refused(summary, output.plan)
    return output.finish(summary)


def _at_a_terminal() -> bool:
    return sys.stderr.isatty()


def _wait_for_second_interrupt() -> None:
    time.sleep(DETACH_WINDOW_S)
