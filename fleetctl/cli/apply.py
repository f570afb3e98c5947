"""`fleetctl apply`: carry a plan out, as far as it fits, and say how it ended for every replica. Removes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.apply_output import ApplyFormat, ApplyOutput
from fleetctl.cli.help import epilog
from fleetctl.cli.options import (
    AddressOption,
    AdoptFromOption,
    ExcludeOption,
    LockTimeoutOption,
    NamespaceOption,
    OptionalFilesOption,
    ParallelismOption,
    TargetOption,
    WaitTimeoutOption,
    YesOption,
)

if TYPE_CHECKING:
    from fleetctl.apply.prepare import ApplyTask
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
               "  7 --wait-timeout passed, 64 usage, 130 interrupted, 143 terminated",
)


FormatOption = Annotated[
    ApplyFormat, typer.Option("--format", help="table, json (the result), or jsonl (every event, then the result).")
]
PlanArgument = Annotated[
    str | None,
    typer.Argument(metavar="PLAN", show_default=False,
                   help="A plan saved by `plan --out`; with --attach the job to follow."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("apply", epilog=EPILOG)(apply)


def apply(
    plan_file: PlanArgument = None,
    files: OptionalFilesOption = None,
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
    """Start what is missing, as far as it fits, until it is ready.

    Nothing that runs is removed, shrunk, moved or restarted. Closing this command does not stop the apply; Ctrl-C once
    does (nothing more is begun), twice only lets go of it.
    """
    from fleetctl.apply.request import ApplyOptions
    from fleetctl.cli.apply_follow import attach_to, carry_out

    _check_arguments(plan_file, files, attach)
    if plan_file is not None or attach:
        _refuse_choices(
            {"--target": target, "--exclude": exclude, "--adopt-from": adopt_from, "--namespace": namespace})
    output = ApplyOutput(output_format)
    with output.ends_with_summary():
        if attach:
            return attach_to(plan_file, files, address, output, wait_timeout)
        options = ApplyOptions(parallelism, lock_timeout, single_use=plan_file is not None)
        planned = (_task_from_plan(plan_file, address) if plan_file is not None
                   else _task_from_files(files or [], address, namespace, (target, exclude, adopt_from)))
        with planned as task:
            output.plan = task.plan
            asks = bool(task.plan.actions) and not yes
            _show_plan(task.plan, output_format, asks=asks)
            if asks and not _agreed(task.plan):
                return 1
            return carry_out(task, options, output, wait_timeout)


def _check_arguments(plan_file: str | None, files: list[str] | None, attach: bool) -> None:
    from fleetctl.errors import UsageError

    if plan_file and files and not attach:
        raise UsageError("give a saved plan or fleet files, not both")
    if not plan_file and not files and not attach:
        raise UsageError("nothing to apply", hint="give -f FLEET, a saved PLAN, or --attach")


def _refuse_choices(choices: dict[str, object]) -> None:
    """Refuse flags that shape a plan where the plan is made already: heeding them in silence would be worse."""
    from fleetctl.errors import UsageError

    given = [flag for flag, value in choices.items() if value]
    if given:
        raise UsageError(f"{', '.join(given)}: this plan is made already, and applied as it is",
                         hint="give them to `fleetctl plan`, or to `fleetctl apply -f FLEET`")


@contextmanager
def _task_from_files(
    files: list[str], address: str | None, namespace: str | None,
    choice: tuple[list[str] | None, list[str] | None, str | None],
) -> Iterator[ApplyTask]:
    """Plan afresh; such an apply is never stale."""
    from fleetctl.apply.prepare import ApplyTask
    from fleetctl.cli.connect import open_dashboard, read_stdin
    from fleetctl.cli.planning import plan_fleet
    from fleetctl.planner.options import PlanOptions
    from fleetctl.spec.load import load_fleet

    fleet = load_fleet(files, stdin=read_stdin)
    targets, excludes, adopt_from = choice
    options = PlanOptions(targets=tuple(targets or ()), excludes=tuple(excludes or ()), adopt_from=adopt_from)
    made = plan_fleet(fleet, options, inventory=None, address=address, namespace=namespace)
    with open_dashboard(address, fleet.cluster.address) as client:
        yield ApplyTask(client, made)


@contextmanager
def _task_from_plan(plan_file: str, address: str | None) -> Iterator[ApplyTask]:
    """Load a saved plan and check that what it relies on still holds."""
    from fleetctl.apply.prepare import prepare_saved
    from fleetctl.cli.connect import now_text, open_dashboard
    from fleetctl.cli.saved_plan import read_saved_plan

    plan = read_saved_plan(plan_file)
    with open_dashboard(address, plan.inventory.address) as client:
        yield prepare_saved(client, plan, now_text())


def _show_plan(plan: Plan, output_format: ApplyFormat, *, asks: bool) -> None:
    """Show the plan as part of the result; in a format for programs only to the person who is asked."""
    from fleetctl.cli.console import message_console, result_console
    from fleetctl.render.plan_table import render_plan_table

    if output_format is ApplyFormat.TABLE or asks:
        console = result_console() if output_format is ApplyFormat.TABLE else message_console()
        render_plan_table(plan, console)
        console.print()


def _agreed(plan: Plan) -> bool:
    from fleetctl.cli.console import confirm, say

    count = len(plan.actions)
    if confirm(f"Create {count} replica{'' if count == 1 else 's'}?", yes=False):
        return True
    say("note", "nothing was done")
    return False
