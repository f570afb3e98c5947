"""`fleetctl apply`: carry a plan out, as far as it fits, and say how it ended for every replica. Removes nothing."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import (
    AddressOption,
    AdoptFromOption,
    ExcludeOption,
    LockTimeoutOption,
    NamespaceOption,
    ParallelismOption,
    TargetOption,
    WaitTimeoutOption,
    YesOption,
)

if TYPE_CHECKING:
    from fleetctl.apply.session import ApplyTask
    from fleetctl.documents.plan import Plan

EPILOG = epilog(
    examples=[
        "fleetctl apply -f fleets/prod.yaml            # plans, asks, applies",
        "fleetctl apply -f fleets/prod.yaml --yes      # in CI",
        "fleetctl apply prod.fleetplan                 # a plan saved by plan --out, once",
        "fleetctl apply --attach                       # follow the one that is running",
    ],
    exit_codes="0 every wanted replica is ready, 1 error before any action, 3 partial: something is blocked,\n"
               "  failed or still starting, 5 another apply holds the lock, 6 the saved plan is stale or used,\n"
               "  7 --wait-timeout passed, 64 usage, 130 interrupted",
)


class ApplyFormat(str, Enum):
    """What apply prints on standard output."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


FormatOption = Annotated[
    ApplyFormat, typer.Option("--format", help="table, json (the result), or jsonl (every event, then the result).")
]
FleetFilesOption = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", metavar="PATH", show_default=False,
                 help="Fleet file, a folder of them, or - for standard input; repeatable."),
]
PlanArgument = Annotated[
    str | None,
    typer.Argument(metavar="[PLAN]", show_default=False,
                   help="A plan saved by `plan --out`; with --attach the job to follow."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("apply", epilog=EPILOG)(apply)


def apply(
    plan_file: PlanArgument = None,
    files: FleetFilesOption = None,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    yes: YesOption = False,
    attach: Annotated[bool, typer.Option("--attach", help="Follow an apply that is already running.")] = False,
    output_format: FormatOption = ApplyFormat.TABLE,
    target: TargetOption = None,
    exclude: ExcludeOption = None,
    adopt_from: AdoptFromOption = None,
    parallelism: ParallelismOption = 10,
    lock_timeout: LockTimeoutOption = 0,
    wait_timeout: WaitTimeoutOption = None,
) -> int:
    """Start what is missing, as far as it fits, and wait until it is ready.

    Nothing that runs is removed, shrunk, moved or restarted. Closing this command does not stop the apply; Ctrl-C once
    does (nothing more is begun), twice only lets go of it.
    """
    from fleetctl.apply.request import ApplyOptions
    from fleetctl.cli.apply_follow import attach_to, carry_out

    _check_arguments(plan_file, files, attach)
    options = ApplyOptions(parallelism, lock_timeout, single_use=plan_file is not None)
    if attach:
        return attach_to(plan_file, files, address, output_format.value, wait_timeout)
    if plan_file is not None:
        task = _task_from_plan(plan_file, address)
    else:
        task = _task_from_files(files or [], address, namespace, (target, exclude, adopt_from))
    _show_plan(task.plan, output_format)
    if task.has_work and not _agreed(task.plan, yes):
        return 1
    return carry_out(task, options, output_format.value, wait_timeout)


def _check_arguments(plan_file: str | None, files: list[str] | None, attach: bool) -> None:
    from fleetctl.errors import UsageError

    if plan_file and files and not attach:
        raise UsageError("give a saved plan or fleet files, not both")
    if not plan_file and not files and not attach:
        raise UsageError("nothing to apply", hint="give -f FLEET, a saved PLAN, or --attach")


def _task_from_files(
    files: list[str], address: str | None, namespace: str | None,
    choice: tuple[list[str] | None, list[str] | None, str | None],
) -> ApplyTask:
    """Plan afresh; such an apply is never stale."""
    from fleetctl.apply.session import ApplyTask
    from fleetctl.cli.connect import open_dashboard, read_stdin
    from fleetctl.cli.plan import plan_fleet
    from fleetctl.planner.options import PlanOptions
    from fleetctl.spec.load import load_fleet

    fleet = load_fleet(files, stdin=read_stdin)
    targets, excludes, adopt_from = choice
    options = PlanOptions(targets=tuple(targets or ()), excludes=tuple(excludes or ()), adopt_from=adopt_from)
    made = plan_fleet(fleet, options, inventory=None, address=address, namespace=namespace)
    timeouts = {model.key: model.startup_timeout_s for model in fleet.models}
    return ApplyTask(open_dashboard(address, fleet.cluster), made, timeouts)


def _task_from_plan(plan_file: str, address: str | None) -> ApplyTask:
    """Load a saved plan and check that what it relies on still holds; raises PlanStale and PlanUsed."""
    from fleetctl.apply.session import ApplyTask
    from fleetctl.apply.used import refuse_used
    from fleetctl.cli.connect import inventory_source, now_text, open_dashboard
    from fleetctl.cli.saved_plan import read_saved_plan, refuse_expired, refuse_stale
    from fleetctl.inventory.read import read_inventory
    from fleetctl.inventory.require import require_complete

    plan = read_saved_plan(plan_file)
    where = address or plan.inventory.address
    client = open_dashboard(where, None)
    refuse_used(client, plan)
    refuse_expired(plan, now_text())
    seen = read_inventory(inventory_source(None, where, plan.fleet.namespace, None))
    require_complete(seen)
    refuse_stale(plan, seen)
    return ApplyTask(client, plan, {})


def _show_plan(plan: Plan, output_format: ApplyFormat) -> None:
    if output_format is ApplyFormat.TABLE:
        from fleetctl.cli.console import result_console
        from fleetctl.render.plan_table import render_plan_table

        console = result_console()
        render_plan_table(plan, console)
        console.print()


def _agreed(plan: Plan, yes: bool) -> bool:
    from fleetctl.cli.console import confirm, say

    count = len(plan.actions)
    question = f"Create {count} replica{'' if count == 1 else 's'}?" if count else "Wait for what is starting?"
    if confirm(question, yes=yes or not count):
        return True
    say("note", "nothing was done")
    return False
