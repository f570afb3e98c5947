"""`fleetctl plan`: show what would run where, what does not fit and why. Writes only the requested files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.process import refuse_two_readers, this_invocation
from fleetctl.cli.reporting import Formats, ReportFormatOption, ReportOption, Reports, parse_reports, show
from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.planner.options import USUAL_EXPIRY_S, PlanOptions
from fleetctl.render.plan_json import render_plan_json
from fleetctl.render.report.formats import ReportFormat
from fleetctl.render.report.model import Report
from fleetctl.render.report.of_plan import plan_report
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.output_files import check_out
from fleetctl.workflow.planning import plan_fleet

if TYPE_CHECKING:
    from fleetctl.documents.answers import PlacementMap
    from fleetctl.review.inputs import Side

app = command_app()


@app.command(epilog=epilog(
    "fleetctl plan -f fleets/prod.yaml",
    "fleetctl plan -f fleets/ --out prod.fleetplan   # for `fleetctl apply`",
    "fleetctl plan -f fleets/ --inventory snapshot.json --format json",
    "fleetctl plan -f fleets/ --base origin/main --report markdown=plan.md",
    "fleetctl plan -f fleets/ --detailed-exitcode   # in CI",
    exit_codes="0 planned, 1 error, 64 usage; with --detailed-exitcode 0 nothing to do, 2 changes, 3 anything "
               "blocked, 4 refused by policy"))
def plan(
    *,
    files: flags.Files,
    where: flags.Source,
    base: flags.Base = None,
    output_format: ReportFormatOption = "table",
    report: ReportOption = None,
    out: flags.Out = None,
    expires: flags.Expires = USUAL_EXPIRY_S,
    detailed_exitcode: flags.DetailedExitCode = False,
    planning: flags.Planning,
) -> int:
    """Show what would run where, what does not fit, and why.

    Compares the fleet files with what is running. Nothing is changed, and no plan ever removes a replica: surplus
    replicas are held.
    """
    refuse_two_readers(files, where.inventory)
    reading = (*files, where.inventory)
    if out:
        check_out(out, reading)
    reports = parse_reports(report, beside=out, reading=reading)
    invocation = this_invocation()
    with reports.of_error("plan", "plan for", files, base=lambda: base):
        loaded = inspect_fleet(files, stdin=invocation.stdin)
        loaded.sound()
        before = None
        if base is not None:
            from fleetctl.review.inputs import load_base  # slow: comparing two fleets

            # before the slow reading of the cluster, as a revision may be mistyped
            before = load_base(files, base, invocation.environ)
        options = replace(planning, files=tuple(files))
        code = plan_and_show(invocation, loaded, options, where, reports, base=before, out=out, expires_s=expires,
                             output_format=output_format)
    return code if detailed_exitcode else 0


def plan_and_show(
    invocation: Invocation, loaded: LoadedFleet, options: PlanOptions, where: Where, reports: Reports, *,
    base: Side | None, out: Path | None, expires_s: float = USUAL_EXPIRY_S, output_format: ReportFormat = "table",
    more: Callable[[Report], Report] = lambda report: report,
) -> int:
    """Make the plan, save it to `out`, show it and report it; returns its detailed exit code.

    `base` = the fleet before the change, `more` adds what is to be said beside the plan.
    """
    planned = plan_fleet(invocation, loaded, options, where, base=base, expires_s=expires_s)
    if out:
        from fleetctl.workflow.saved_plan import save_plan  # most plans are not saved

        save_plan(invocation, planned.plan, out, invocation.now() if where.inventory else planned.inventory.observed_at)
    shown = planned.shown()
    formats = plan_formats(shown, planned.map, cache(lambda: more(plan_report(shown))))
    show(replace(formats, plan_file=out), output_format, reports)
    return planned.plan.exit_code


def plan_formats(
    plan: Plan, placement_map: Callable[[], PlacementMap | None], report: Callable[[], Report]
) -> Formats:
    """Return the plan in every format; `placement_map` is called only for the HTML page."""
    def page() -> str:
        from fleetctl.render.page.plan_page import plan_page  # needed by no other format

        return plan_page(plan, placement_map(), report())

    return Formats(json=lambda: render_plan_json(plan), report=report, page=page, plan_id=plan.plan_id,
                   acts=bool(plan.actions))
