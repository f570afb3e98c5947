"""The apply in CI, after a merge: a saved plan exactly, or the files afresh; then the forge is told how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.cli.apply_output import ApplyFormat, ApplyOutput
from fleetctl.errors import FleetctlError, UsageError

if TYPE_CHECKING:
    from fleetctl.cli.apply_task import Proposal
    from fleetctl.cli.ci_job import Job
    from fleetctl.cli.ci_publish import Told
    from fleetctl.cli.planning import Where
    from fleetctl.documents.events import ReplicaOutcome, RunSummary
    from fleetctl.documents.plan import Plan
    from fleetctl.render.report.model import Report


class NotedOutput(ApplyOutput):
    """Output of an apply that also keeps how it ended for each replica."""

    def __init__(self) -> None:
        super().__init__(ApplyFormat.TABLE)
        self.outcomes: list[ReplicaOutcome] = []

    def finish(self, summary: RunSummary | None) -> int:
        """See `ApplyOutput`."""
        from fleetctl.apply.outcome import all_outcomes

        self.outcomes = all_outcomes(self.plan, summary)
        return super().finish(summary)


def run_apply(job: Job, plan_file: str | None, lock_timeout_s: float) -> int:
    """Apply, tell the forge, and return the exit code of the apply; raises UsageError where there is nothing to."""
    from fleetctl.cli.ci_publish import annotate, publish

    if not plan_file and not job.files:
        raise UsageError("nothing to apply", hint="give a saved PLAN, or -f FLEET, or FLEETCTL_FILES")
    told = _applied(job, plan_file, lock_timeout_s)
    publish(job.forge, told, comment=False)
    annotate(job.forge, told.report)
    return told.code


def refuse_what_is_for_reviews(environ: Mapping[str, str]) -> None:
    """Raise UsageError for what the job asks and an apply does not do: it would be missed only afterwards."""
    for name, why in (("FLEETCTL_REPORTS", "an apply writes no reports"),
                      ("FLEETCTL_INVENTORY", "an apply reads the cluster itself")):
        if environ.get(name, "").strip():
            raise UsageError(f"{why}, and {name} is set", hint="give it to the review alone: in the action, inputs "
                             "`reports` and `inventory`; in GitLab, variables of its job")


def _applied(job: Job, plan_file: str | None, lock_timeout_s: float) -> Told:
    from fleetctl.apply.request import ApplyOptions
    from fleetctl.cli import failures
    from fleetctl.cli.apply_follow import carry_out
    from fleetctl.cli.apply_task import agreed_to
    from fleetctl.cli.ci_publish import Told

    output = NotedOutput()
    try:
        with _proposal(job, plan_file) as proposal:
            task = proposal.task
            output.plan = task.plan
            agreed_to(proposal, ApplyFormat.TABLE, force=job.force, yes=True)
            options = ApplyOptions(lock_timeout_s=lock_timeout_s, single_use=task.single_use)
            code = carry_out(task, options, output, None)
        return Told(_report(task.plan, output.outcomes, code), code, task.plan.plan_id, bool(task.plan.actions))
    except UsageError:
        raise
    except FleetctlError as error:
        failures.explain(error)
        return _failed(job, output.plan or _saved(plan_file), error)


def _proposal(job: Job, plan_file: str | None) -> AbstractContextManager[Proposal]:
    from fleetctl.cli.apply_task import proposed_by_files, proposed_by_plan
    from fleetctl.planner.options import PlanOptions

    if plan_file:
        return proposed_by_plan(plan_file, job.where.address, force=job.force, yes=True)
    return proposed_by_files(PlanOptions(force=job.force, files=job.files), _where(job))


def _where(job: Job) -> Where:
    """Return which cluster: as the job tells it, else as the files do where they are merged."""
    from fleetctl.cli.ci_base import vouched_address
    from fleetctl.cli.connect import fleet_of

    if job.address() or "-" in job.files or job.forge is None or job.forge.change:
        return job.where
    fleet = fleet_of(job.files)
    return replace(job.where, address=vouched_address(fleet, None, job.forge)) if fleet else job.where


def _report(plan: Plan, outcomes: list[ReplicaOutcome], code: int) -> Report:
    """Return the report that the history would show of this run, under the fleet's name."""
    from fleetctl.documents.history import HistoryRun
    from fleetctl.render.report.of_history import run_report
    from fleetctl.render.report.of_outcomes import totals

    git = plan.fleet.git
    run = HistoryRun(
        id=f"apply:{plan.plan_id}", verb="apply", fleet=plan.fleet.name, state="ok" if code == 0 else "partial",
        message=totals(outcomes), plan_id=plan.plan_id, commit=git.commit if git else None,
        branch=git.branch if git else None, tool_version=plan.tool_version, create=len(plan.actions),
        files=plan.fleet.files, outcomes=outcomes,
    )
    report = run_report(run)
    facts = tuple(fact for fact in report.facts if fact[0] != "run")  # the plan's id stands there, too
    return replace(report, identity=f"apply:{plan.fleet.name}", verdict=totals(outcomes), exit_code=code, facts=facts,
                   title=f"Apply of fleet {plan.fleet.name}")


def _saved(plan_file: str | None) -> Plan | None:
    """Return the plan that was refused, to name its fleet; None where it cannot be read, or there is none."""
    from fleetctl.cli.saved_plan import read_saved_plan
    from fleetctl.errors import DocumentError

    try:
        return read_saved_plan(plan_file) if plan_file else None
    except DocumentError:
        return None


def _failed(job: Job, plan: Plan | None, error: FleetctlError) -> Told:
    from fleetctl.cli.ci_base import fleet_name
    from fleetctl.cli.ci_publish import Told
    from fleetctl.render.report.of_problems import failure_report

    name = plan.fleet.name if plan else fleet_name(job.files, None) or "unknown"
    report = failure_report(error, identity=f"apply:{name}", fleet=name, title=f"No apply of fleet {name}")
    return Told(report, error.exit_code, plan.plan_id if plan else "", bool(plan and plan.actions))
