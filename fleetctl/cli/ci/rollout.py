"""The rollout in CI, in a protected environment: replace what is outdated, and report to the forge.

Apart from `ci apply`, which must not reach a verb that ends replicas.
"""

from __future__ import annotations

import os
from typing import Annotated

from fleetctl.cli import flags
from fleetctl.cli.apply_run import ApplyOutput
from fleetctl.cli.ci import job as ci
from fleetctl.cli.ci.apply import FailOn, exit_code_of, outcomes_of_job
from fleetctl.cli.ci.job import Job, JobResult
from fleetctl.cli.commands import command_app
from fleetctl.cli.explicit import VerbRequest
from fleetctl.cli.process import this_invocation
from fleetctl.cli.rollout import AT_ONCE, MAX_AT_ONCE, roll_out
from fleetctl.documents.events import HistoryRun
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.forge.forges import find_forge
from fleetctl.planner.options import PlanOptions
from fleetctl.version import __version__

app = command_app(
    "fleetctl ci rollout -f fleets/prod.yaml --address http://ray-head:8265",
    "fleetctl ci rollout -f fleets/ --at-once 8 --drain 30s",
    exit_codes="as for rollout: 0 all are current, 1 error, 3 something stays outdated, 4 refused by policy, 5 locked, "
               "64 usage")


@app.command()
def rollout(
    *,
    files: flags.OptionalFiles = None,
    where: flags.Cluster,
    selector: ci.SelectorOption = None,
    at_once: Annotated[int, flags.option(
        "--at-once", metavar="N", min=1, max=MAX_AT_ONCE, envvar="FLEETCTL_AT_ONCE",
        help="At most N models at a time.")] = AT_ONCE,
    drain: Annotated[float, flags.option(
        "--drain", metavar="DURATION", envvar="FLEETCTL_DRAIN", parser=flags.duration,
        help="How long a replica's requests may take to end. [default: 0s]")] = 0,
    force: ci.ForceOption = False,
    ignore_cooldown: ci.IgnoreCooldownOption = False,
    lock_timeout: ci.LockTimeoutOption = 600,
    fail_on: FailOn = "blocked",
    forge: ci.ForgeOption = "auto",
) -> int:
    """Replace all that is outdated, and report to the forge.

    It ends replicas, so run it in an environment that needs an approval. It asks no questions. FLEETCTL_FILES may also
    name the files, one per line.
    """
    job = Job(this_invocation(), ci.lines_of(files, "FLEETCTL_FILES"), where, force=force,
              ignore_cooldown=ignore_cooldown, forge=find_forge(os.environ, forge))
    job.check()
    output = ApplyOutput("table")
    options = PlanOptions(force=force, selector=selector, ignore_cooldown=ignore_cooldown)
    wanted = VerbRequest("evict", "Replace", yes=True, dry_run=False, output_format="table",
                         lock_timeout_s=lock_timeout, drain_s=drain)
    result = _rolled_out(job, options, wanted, output, at_once)
    ci.publish(job, result, comment=False)
    return exit_code_of(result, output, fail_on)


def _rolled_out(job: Job, options: PlanOptions, wanted: VerbRequest, output: ApplyOutput, at_once: int) -> JobResult:
    try:
        loaded = inspect_fleet(job.files)
        name = loaded.sound().name
        code = roll_out(job.invocation, ci.trusted_where(job), loaded, options, wanted, output, at_once)
        run = HistoryRun(id=f"rollout:{name}", verb="rollout", fleet=name, state="ok" if code == 0 else "partial",
                         message="", tool_version=__version__, outcomes=output.outcomes)
        return JobResult(outcomes_of_job(run, code), code, has_changes=bool(output.outcomes))
    except UsageError:
        raise
    except FleetctlError as error:
        return ci.failed(job, error, "rollout", "rollout")
