"""The rollout in CI, in a protected environment: replace what is outdated, and report to the forge.

Apart from `ci apply`, which must not reach a verb that ends replicas.
"""

from __future__ import annotations

from typing import Annotated

from fleetctl.cli import flags
from fleetctl.cli.apply_run import ApplyOutput
from fleetctl.cli.ci.apply import FailOn, exit_code_of
from fleetctl.cli.ci.job import (
    ForceOption,
    ForgeOption,
    IgnoreCooldownOption,
    LockTimeoutOption,
    SelectorOption,
    job_of,
    lines_of,
)
from fleetctl.cli.commands import command_app
from fleetctl.cli.explicit import VerbRequest
from fleetctl.cli.rollout import AT_ONCE, MAX_AT_ONCE, roll_out
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.planner.options import PlanOptions

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
    selector: SelectorOption = None,
    at_once: Annotated[int, flags.option(
        "--at-once", metavar="N", min=1, max=MAX_AT_ONCE, envvar="FLEETCTL_AT_ONCE",
        help="At most N models at a time.")] = AT_ONCE,
    drain: Annotated[float, flags.option(
        "--drain", metavar="DURATION", envvar="FLEETCTL_DRAIN", parser=flags.duration,
        help="How long a replica's requests may take to end. [default: 0s]")] = 0,
    force: ForceOption = False,
    ignore_cooldown: IgnoreCooldownOption = False,
    lock_timeout: LockTimeoutOption = 600,
    fail_on: FailOn = "blocked",
    forge: ForgeOption = "auto",
) -> int:
    """Replace all that is outdated, and report to the forge.

    It ends replicas, so run it in an environment that needs an approval. It asks no questions. FLEETCTL_FILES may also
    name the files, one per line.
    """
    job = job_of(lines_of(files, "FLEETCTL_FILES"), where, forge)
    output = ApplyOutput("table")
    options = PlanOptions(force=force, selector=selector, ignore_cooldown=ignore_cooldown)
    wanted = VerbRequest("evict", "Replace", yes=True, dry_run=False, output_format="table",
                         lock_timeout_s=lock_timeout, drain_s=drain)
    with job.reports.of_error("rollout", "rollout of", job.files):
        loaded = inspect_fleet(job.files)
        name = loaded.sound().name
        with output.waiting:
            code = roll_out(job.invocation, job.trusted(), loaded, options, wanted, output, at_once)
        output.report_to(job.reports, code, name)
    return exit_code_of(code, output, fail_on)
