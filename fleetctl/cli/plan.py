"""`fleetctl plan`: say what would run where, what does not fit and why. Writes nothing but the file --out names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import (
    AddressOption,
    AdoptFromOption,
    DetailedExitCodeOption,
    ExcludeOption,
    FilesOption,
    FormatOption,
    InventoryOption,
    NamespaceOption,
    OutOption,
    OutputFormat,
    TargetOption,
)

if TYPE_CHECKING:
    from fleetctl.documents.plan import Plan

EPILOG = epilog(
    examples=[
        "fleetctl plan -f fleets/prod.yaml",
        "fleetctl plan -f fleets/ --out prod.fleetplan && fleetctl apply prod.fleetplan",
        "fleetctl plan -f fleets/ --inventory snapshot.json --format json",
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
    output_format: FormatOption = OutputFormat.TABLE,
    out: OutOption = None,
    detailed_exitcode: DetailedExitCodeOption = False,
    target: TargetOption = None,
    exclude: ExcludeOption = None,
    adopt_from: AdoptFromOption = None,
) -> int:
    """Show what would run where, what does not fit and why.

    Compares the fleet files with what runs now. Nothing is changed, and no plan ever removes a replica: more live than
    wanted is held.
    """
    from fleetctl.cli.connect import read_stdin, refuse_two_readers
    from fleetctl.cli.planning import plan_fleet
    from fleetctl.planner.options import PlanOptions
    from fleetctl.spec.load import load_fleet

    refuse_two_readers(files, inventory)
    fleet = load_fleet(files, stdin=read_stdin)
    options = PlanOptions(targets=tuple(target or ()), excludes=tuple(exclude or ()), adopt_from=adopt_from)
    made = plan_fleet(fleet, options, inventory=inventory, address=address, namespace=namespace)
    if out:
        _save(made, out)
    _show(made, output_format)
    return made.exit_code if detailed_exitcode else 0


def _show(made: Plan, output_format: OutputFormat) -> None:
    from fleetctl.cli.console import result_console, write_result

    if output_format is OutputFormat.JSON:
        from fleetctl.render.plan_json import render_plan_json

        write_result(render_plan_json(made))
    else:
        from fleetctl.render.plan_table import render_plan_table

        render_plan_table(made, result_console())


def _save(made: Plan, out: Path) -> None:
    from fleetctl.apply.prepare import has_expired
    from fleetctl.cli.connect import now_text
    from fleetctl.cli.console import say
    from fleetctl.cli.write_file import write_file
    from fleetctl.errors import UsageError
    from fleetctl.render.plan_json import saved_plan_json

    if str(out) == "-":
        raise UsageError("--out needs a file: a saved plan holds env values", hint="--format json prints it, masked")
    write_file(out, saved_plan_json(made), mode=0o600)
    if has_expired(made, now_text()):
        say("saved", str(out))
        say("warning", f"`fleetctl apply` will refuse it: its inventory is of {made.inventory.observed_at}, "
                       f"so it expired at {made.expires_at}")
        return
    until = f" until {made.expires_at}" if made.expires_at else ""
    say("saved", f"{out}; run it with `fleetctl apply {out}`{until}")
