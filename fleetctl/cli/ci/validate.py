"""The check of fleet files in CI, for jobs without access to a cluster: any branch, pull requests from forks."""

from __future__ import annotations

import os
from dataclasses import replace

from fleetctl.cli import flags
from fleetctl.cli.ci.job import ForgeOption, Job, JobResult, lines_of, publish
from fleetctl.cli.commands import command_app
from fleetctl.cli.process import this_invocation
from fleetctl.cli.reporting import ReportOption, parse_reports, show
from fleetctl.cli.validate import problem_formats
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.forge.detect import find_forge
from fleetctl.render.report.of_problems import problems_conclusion
from fleetctl.workflow.invocation import Where

app = command_app(
    "fleetctl ci validate -f fleets/prod.yaml --report junit=fleet.xml",
    exit_codes="0 valid (warnings allowed), 1 errors, 64 usage")


@app.command()
def validate(
    files: flags.OptionalDiskFiles = None,
    report: ReportOption = None,
    forge: ForgeOption = "auto",
) -> int:
    """Check fleet files, and report to the forge.

    The forge gets annotations, a summary page and outputs; no cluster is contacted. FLEETCTL_FILES may also name the
    files, and FLEETCTL_REPORTS the reports, one per line.
    """
    job = Job(this_invocation(), lines_of(files, "FLEETCTL_FILES"), Where(),
              reports=lines_of(report, "FLEETCTL_REPORTS"), forge=find_forge(os.environ, forge))
    job.check()
    loaded = inspect_fleet(job.files)
    formats, reports = problem_formats(loaded), parse_reports(job.reports)
    show(formats, "table", reports)
    job.invocation.say("valid" if loaded.fleet else "error", problems_conclusion(loaded))
    shown = formats.report()
    name = f"validate:{loaded.fleet.name}" if loaded.fleet else "validate"
    result = JobResult(replace(shown, identity=name), shown.exit_code, reports=reports)
    publish(job, result, comment=False)
    return result.code
