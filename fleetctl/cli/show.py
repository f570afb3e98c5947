"""`fleetctl show FILE`: look at a saved plan in every format, and say whether it can still be applied. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import AddressOption, DetailedExitCodeOption, InventoryOption
from fleetctl.cli.reporting import ReportFormatOption, ReportOption
from fleetctl.render.report.formats import ReportFormat

if TYPE_CHECKING:
    from fleetctl.cli.plan_check import Checked
    from fleetctl.documents.plan import Plan

EPILOG = epilog(
    examples=[
        "fleetctl show prod.fleetplan",
        "fleetctl show prod.fleetplan --check                       # could it be applied now?",
        "fleetctl show prod.fleetplan --report html=plan.html --report markdown=plan.md",
        "fleetctl plan -f fleets/ --format json | fleetctl show -   # a masked plan, too",
    ],
    exit_codes="0 shown, 1 error, 64 usage; with --detailed-exitcode as for plan,\n"
               "  and 6 first if it has expired, or was checked and is stale or used",
)

PlanArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A plan, as `plan --out` or `plan --format json` wrote it; - for standard "
                                             "input.")
]
CheckOption = Annotated[
    bool,
    typer.Option("--check", help="Ask the plan's cluster whether it could be applied now; --address and --inventory "
                                 "imply it."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show", epilog=EPILOG)(show_plan)


def show_plan(
    plan_file: PlanArgument,
    address: AddressOption = None,
    inventory: InventoryOption = None,
    check: CheckOption = False,
    output_format: ReportFormatOption = ReportFormat.TABLE,
    report: ReportOption = None,
    detailed_exitcode: DetailedExitCodeOption = False,
) -> int:
    """Show a saved plan, and whether it can still be applied.

    The plan goes to standard output; when it expires, which version made it and, with --check, what has moved since go
    to standard error. Env values are never shown.
    """
    from fleetctl.cli.connect import now_text, refuse_two_readers
    from fleetctl.cli.plan_check import check_plan
    from fleetctl.cli.plan_faces import plan_faces
    from fleetctl.cli.reporting import parse_reports, show
    from fleetctl.cli.saved_plan import read_saved_plan

    refuse_two_readers([plan_file], inventory)
    reports = parse_reports(report, reading=(plan_file, inventory))
    plan = read_saved_plan(plan_file, masked_too=True)
    now = now_text()
    checked = check_plan(plan, plan_file, now, inventory=inventory, address=address,
                         ask=check or bool(address or inventory))
    _say_state(plan, checked, now)
    faces = plan_faces(plan, checked.picture)
    show(faces, output_format, reports)
    return (checked.exit_code or plan.exit_code) if detailed_exitcode else 0


def _say_state(plan: Plan, checked: Checked, now: str) -> None:
    """Say where the plan comes from and whether an apply would take it."""
    from fleetctl.cli.console import say
    from fleetctl.cli.saved_plan import origin_of
    from fleetctl.documents.plan import MaskedPlan

    say("plan", origin_of(plan, now))
    if isinstance(plan, MaskedPlan):
        say("note", "env values are masked in this document: it is to be looked at, and `fleetctl apply` refuses it")
    if checked.refusal is None:
        if checked.inventory is not None:
            say("check", "nothing it relies on has moved since it was made")
        return
    say("check", checked.refusal.message)
    for moved in checked.moved:
        say("moved", moved)
    if checked.refusal.hint:
        say("hint", checked.refusal.hint)
