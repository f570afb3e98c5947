"""The check of fleet files in CI, for jobs that reach no cluster: every branch, and pull requests from forks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.cli.ci_job import Job
    from fleetctl.cli.ci_publish import Told


def run_validate(job: Job) -> int:
    """Validate, tell the forge on its summary page and at the lines, and return 1 where there are errors."""
    from fleetctl.cli.ci_publish import annotate, publish

    job.check()
    told = _validated(job)
    publish(job.forge, told, comment=False)
    annotate(job.forge, told.report)
    return told.code


def _validated(job: Job) -> Told:
    from fleetctl.cli.ci_publish import Told
    from fleetctl.cli.reporting import parse_reports, show, write_reports
    from fleetctl.cli.validate import problem_faces
    from fleetctl.fleetfile.load import inspect_fleet
    from fleetctl.render.report.formats import ReportFormat

    loaded = inspect_fleet(job.files)
    faces, reports = problem_faces(loaded), parse_reports(job.reports)
    show(faces, ReportFormat.TABLE)
    write_reports(faces, reports)
    report = faces.report()
    name = f"validate:{loaded.fleet.name}" if loaded.fleet else "validate"
    return Told(replace(report, identity=name), report.exit_code, reports=tuple(str(one.path) for one in reports))
