"""`fleetctl plan`: say what would run where, what does not fit and why. Writes nothing but the files it is told to."""

from __future__ import annotations

import os

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import (
    AddressOption,
    AdoptFromOption,
    BaseOption,
    DetailedExitCodeOption,
    ExcludeOption,
    ExpiresOption,
    FilesOption,
    ForceOption,
    InventoryOption,
    NamespaceOption,
    OutOption,
    TargetOption,
)
from fleetctl.cli.planning import DEFAULT_EXPIRY_S
from fleetctl.cli.reporting import ReportFormatOption, ReportOption
from fleetctl.render.report.formats import ReportFormat

EPILOG = epilog(
    examples=[
        "fleetctl plan -f fleets/prod.yaml",
        "fleetctl plan -f fleets/ --out prod.fleetplan && fleetctl apply prod.fleetplan",
        "fleetctl plan -f fleets/ --inventory snapshot.json --format json",
        "fleetctl plan -f fleets/ --base origin/main --report markdown=plan.md --report html=plan.html",
        "fleetctl plan -f fleets/ --detailed-exitcode   # in CI",
    ],
    exit_codes="0 planned, 1 error, 64 usage; with --detailed-exitcode 0 nothing to do,\n"
               "  2 changes, 3 anything blocked, 4 refused by policy",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan", epilog=EPILOG)(plan)


def plan(
    files: FilesOption,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    inventory: InventoryOption = None,
    base: BaseOption = None,
    output_format: ReportFormatOption = ReportFormat.TABLE,
    report: ReportOption = None,
    out: OutOption = None,
    expires: ExpiresOption = DEFAULT_EXPIRY_S,
    detailed_exitcode: DetailedExitCodeOption = False,
    target: TargetOption = None,
    exclude: ExcludeOption = None,
    adopt_from: AdoptFromOption = None,
    force: ForceOption = False,
) -> int:
    """Show what would run where, what does not fit and why.

    Compares the fleet files with what runs now. Nothing is changed, and no plan ever removes a replica: more live than
    wanted is held.
    """
    from fleetctl.cli.changing import change_since
    from fleetctl.cli.connect import read_stdin, refuse_two_readers
    from fleetctl.cli.outdated import with_changes
    from fleetctl.cli.plan_faces import plan_faces
    from fleetctl.cli.planning import Where, plan_fleet
    from fleetctl.cli.reporting import parse_reports, show
    from fleetctl.cli.saved_plan import check_out, save_plan
    from fleetctl.fleetfile.load import inspect_fleet
    from fleetctl.planner.options import PlanOptions
    from fleetctl.review.base import load_base

    refuse_two_readers(files, inventory)
    reading = (*files, inventory)
    check_out(out, reading)
    reports = parse_reports(report, beside=out, reading=reading)
    loaded = inspect_fleet(files, stdin=read_stdin)
    options = PlanOptions(tuple(target or ()), tuple(exclude or ()), adopt_from, force, tuple(files))
    fleet = loaded.sound()
    # before the cluster is asked, which takes its time: a revision may be mistyped
    before = load_base(files, base, os.environ) if base is not None else None
    planned = plan_fleet(fleet, options, Where(inventory, address, namespace, expires))
    made = change_since(before, files, loaded, planned) if before else planned.plan
    if out:
        save_plan(made, out)
    faces = plan_faces(with_changes(made, planned.changes), planned.picture)
    show(faces, output_format, reports)
    return made.exit_code if detailed_exitcode else 0
