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
    from fleetctl.documents.inventory import Inventory
    from fleetctl.documents.plan import Plan
    from fleetctl.planner.options import PlanFacts, PlanOptions
    from fleetctl.spec.resolved import ResolvedFleet

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


def plan_fleet(
    fleet: ResolvedFleet, options: PlanOptions, *, inventory: str | None, address: str | None, namespace: str | None
) -> Plan:
    """Read the inventory the flags point to and plan on it.

    Raises InventoryError when it could not be read whole, UsageError when --target or --exclude name no model.
    """
    import os

    from fleetctl.cli.connect import inventory_source, resolve_namespace
    from fleetctl.inventory.read import read_inventory
    from fleetctl.inventory.require import require_complete
    from fleetctl.planner.plan import make_plan

    seen = read_inventory(inventory_source(inventory, address, namespace, fleet.cluster))
    require_complete(seen)
    _warn(seen)
    return make_plan(fleet, seen, options, _facts(fleet, seen, resolve_namespace(namespace, os.environ, fleet.cluster)))


def expiry(observed_at: str) -> str | None:
    """Return when a plan made at `observed_at` (RFC 3339) expires: a day later; None where that is no time."""
    from datetime import datetime, timedelta

    try:
        moment = datetime.fromisoformat(observed_at.replace("Z", "+00:00"))
        return (moment + timedelta(days=1)).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return None


def _facts(fleet: ResolvedFleet, inventory: Inventory, namespace: str) -> PlanFacts:
    import os

    from fleetctl.cli.git import git_facts
    from fleetctl.planner.options import PlanFacts
    from fleetctl.version import __version__

    return PlanFacts(
        tool_version=__version__,
        git=git_facts([source.path for source in fleet.files], os.environ),
        expires_at=expiry(inventory.observed_at),
        namespace=namespace,
        address=inventory.cluster.address,
    )


def _warn(inventory: Inventory) -> None:
    if inventory.warnings:
        from fleetctl.cli.console import say

        for warning in inventory.warnings:
            say("warning", warning)


def _show(made: Plan, output_format: OutputFormat) -> None:
    from fleetctl.cli.console import result_console, write_result

    if output_format is OutputFormat.JSON:
        from fleetctl.render.plan_json import render_plan_json

        write_result(render_plan_json(made))
    else:
        from fleetctl.render.plan_table import render_plan_table

        render_plan_table(made, result_console())


def _save(made: Plan, out: Path) -> None:
    from fleetctl.cli.console import say
    from fleetctl.cli.save import save_private
    from fleetctl.errors import UsageError
    from fleetctl.render.plan_json import saved_plan_json

    if str(out) == "-":
        raise UsageError("--out needs a file: a saved plan holds env values", hint="--format json prints it, masked")
    save_private(out, saved_plan_json(made))
    until = f" until {made.expires_at}" if made.expires_at else ""
    say("saved", f"{out}; run it with `fleetctl apply {out}`{until}")
