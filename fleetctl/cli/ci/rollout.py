"""The rollout in CI, in a protected environment: update the outdated models of the files, then report to the forge."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated

from fleetctl.cli import failures, flags
from fleetctl.cli.ci import job as ci
from fleetctl.cli.ci.job import Job, JobResult
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import show_report
from fleetctl.cli.explicit import DrainTime, Wanted
from fleetctl.cli.process import this_invocation
from fleetctl.cli.rollout import AT_ONCE, LOCK_TIMEOUT_S, AtOnce, Rollout
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.forge.detect import find_forge
from fleetctl.planner.options import PlanOptions
from fleetctl.render.report.of_problems import failure_report
from fleetctl.render.report.of_runs import outcomes_report

app = command_app(
    "fleetctl ci rollout -f fleets/prod.yaml --address http://ray-head:8265",
    "fleetctl ci rollout -f fleets/ --selector team=nlp --drain 30s",
    exit_codes="as for rollout: 0 all are current, 1 error, 3 some models keep outdated replicas, 5 locked, 64 usage")


@app.command()
def rollout(
    *,
    files: flags.OptionalFiles = None,
    where: flags.Cluster,
    selector: flags.Selector = None,
    at_once: AtOnce = AT_ONCE,
    drain: DrainTime = 0,
    force: ci.ForceOption = False,
    ignore_cooldown: ci.IgnoreCooldownOption = False,
    lock_timeout: Annotated[float, flags.option(
        "--lock-timeout", metavar="DURATION", envvar="FLEETCTL_LOCK_TIMEOUT", parser=flags.duration,
        help=f"{flags.LOCK_TIMEOUT_HELP} [default: 30m]")] = LOCK_TIMEOUT_S,
    forge: ci.ForgeOption = "auto",
) -> int:
    """Update all outdated models of a merged change, and report to the forge.

    It asks no questions, and ends replicas: run it in an environment that a person must approve. FLEETCTL_FILES may
    also name the files, one per line.
    """
    job = Job(this_invocation(), ci.lines_of(files, "FLEETCTL_FILES"), where, force=force,
              ignore_cooldown=ignore_cooldown, forge=find_forge(os.environ, forge))
    if not job.files:
        raise UsageError("nothing to roll out", hint="give -f FLEET, or FLEETCTL_FILES")
    job.check()
    name = ci.fleet_name(job.invocation, job.files, None) or "unknown"
    try:
        wanted = Wanted("evict", "Replace", True, False, "table", lock_timeout, drain)
        options = PlanOptions(selector=selector, force=force, ignore_cooldown=ignore_cooldown)
        made = Rollout(job.invocation, ci.trusted_where(job), inspect_fleet(job.files), options, wanted, at_once)
        code = made.run() or 0
        report = outcomes_report(made.outcomes, verb="rollout")
        show_report(report)
        result = JobResult(replace(report, identity=f"rollout:{name}", exit_code=code,
                                   title=f"Rollout of fleet {name}"), code)
    except UsageError:
        raise
    except FleetctlError as error:
        failures.explain(error)
        report = failure_report(error, identity=f"rollout:{name}", fleet=name, title=f"No rollout of fleet {name}")
        result = JobResult(report, error.exit_code)
    ci.publish(job, result, comment=False)
    return result.code
