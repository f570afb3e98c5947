"""`fleetctl show FILE`: a saved plan in every format of `plan`, and whether it can still be applied."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import say
from fleetctl.cli.plan import plan_formats
from fleetctl.cli.process import refuse_two_readers, this_invocation
from fleetctl.cli.reporting import ReportFormatOption, ReportOption, parse_reports, show
from fleetctl.documents.plan import MaskedPlan, Plan
from fleetctl.render.report.of_plan import plan_report
from fleetctl.workflow.invocation import Where
from fleetctl.workflow.saved_plan import CheckedPlan, check_plan, origin_of, read_saved_plan

app = command_app()


@app.command("show", epilog=epilog(
    "fleetctl show prod.fleetplan",
    "fleetctl show prod.fleetplan --check   # could it be applied now?",
    "fleetctl show prod.fleetplan --report html=plan.html",
    "fleetctl plan -f fleets/ --format json | fleetctl show -   # a masked plan",
    exit_codes="0 shown, 1 error, 64 usage; with --detailed-exitcode as for plan, but 6 if it has expired, or was "
               "checked and is stale or used"))
def show_plan(
    plan_file: Annotated[str, typer.Argument(
        metavar="FILE", help="Plan written by `plan --out` or `plan --format json`; - for standard input.")],
    address: flags.Address = None,
    inventory: flags.Inventory = None,
    check: Annotated[bool, typer.Option(
        "--check",
        help="Check on its cluster whether it could be applied now; --address and --inventory imply it.")] = False,
    output_format: ReportFormatOption = "table",
    report: ReportOption = None,
    detailed_exitcode: flags.DetailedExitCode = False,
) -> int:
    """Show a saved plan, and whether it can still be applied.

    The plan goes to standard output. Its expiry, the version that made it and, with --check, what has changed since go
    to standard error. Env values are never shown.
    """
    refuse_two_readers([plan_file], inventory)
    reports = parse_reports(report, reading=(plan_file, inventory))
    invocation = this_invocation()
    plan = read_saved_plan(invocation, plan_file, masked_too=True)
    checked = check_plan(invocation, plan, plan_file, Where(inventory, address),
                         ask=check or bool(address or inventory))
    _say_state(plan, checked)
    show(plan_formats(plan, checked.map, lambda: plan_report(plan)), output_format, reports)
    return (checked.refusal or plan).exit_code if detailed_exitcode else 0


def _say_state(plan: Plan, checked: CheckedPlan) -> None:
    """Report the origin of the plan, and whether an apply would accept it."""
    say("plan", origin_of(plan, checked.now))
    if isinstance(plan, MaskedPlan):
        say("note", "env values are masked in this document; it can be shown, but `fleetctl apply` refuses it")
    if checked.refusal is None:
        if checked.inventory is not None:
            say("check", "nothing it relies on has changed since it was made")
        return
    say("check", checked.refusal.message)
    say("moved", *checked.refusal.listed)
    if checked.refusal.hint:
        say("hint", checked.refusal.hint)
