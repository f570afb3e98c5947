"""`fleetctl apply`: carry a plan out, as far as it fits, and say how it ended for every replica. Removes nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.apply_output import ApplyFormat, ApplyOutput
from fleetctl.cli.help import epilog
from fleetctl.cli.options import (
    AddressOption,
    AdoptFromOption,
    ExcludeOption,
    ForceOption,
    LockTimeoutOption,
    NamespaceOption,
    OptionalFilesOption,
    ParallelismOption,
    TargetOption,
    WaitTimeoutOption,
    YesOption,
)

if TYPE_CHECKING:
    from fleetctl.cli.apply_task import Proposal
    from fleetctl.planner.options import PlanOptions

EPILOG = epilog(
    examples=[
        "fleetctl apply -f fleets/prod.yaml            # plans, asks, applies",
        "fleetctl apply -f fleets/prod.yaml --yes      # in CI",
        "fleetctl apply prod.fleetplan                 # a plan saved by plan --out, once",
        "fleetctl apply --attach                       # follow the one that is running",
    ],
    exit_codes="0 every wanted replica is ready, 1 error before any action, 3 partial: something is blocked,\n"
               "  failed or still starting, 4 refused by policy, 5 another apply holds the lock,\n"
               "  6 the saved plan is stale or used, 7 --wait-timeout passed, 64 usage, 130 interrupted,\n"
               "  143 terminated",
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
    force: ForceOption = False,
    parallelism: ParallelismOption = 10,
    lock_timeout: LockTimeoutOption = 0,
    wait_timeout: WaitTimeoutOption = None,
    no_wait: Annotated[bool, typer.Option(
        "--no-wait", help="End when all is created, without waiting until it is ready; then exit 0 unless blocked.",
    )] = False,
) -> int:
    """Start what is missing, as far as it fits, until it is ready.

    Nothing that runs is removed, shrunk, moved or restarted. Closing this command does not stop the apply. Ctrl-C stops
    it (nothing more is begun); twice within a second only detaches from it.
    """
    from fleetctl.apply.request import ApplyOptions
    from fleetctl.cli.apply_follow import attach_to, carry_out
    from fleetctl.cli.apply_task import agreed_to
    from fleetctl.planner.options import PlanOptions

    _check_arguments(plan_file, files, attach)
    if plan_file is not None or attach:
        _refuse_choices({"--target": target, "--exclude": exclude, "--adopt-from": adopt_from,
                         "--namespace": namespace, "--force": force and attach})
    options = PlanOptions(tuple(target or ()), tuple(exclude or ()), adopt_from, force, tuple(files or ()))
    output = ApplyOutput(output_format)
    with output.ends_with_summary():
        if attach:
            return attach_to(plan_file, files, address, output, wait_timeout)
        with _proposal(plan_file, options, address, namespace, yes=yes) as proposal:
            task = proposal.task
            output.plan = task.plan
            if not agreed_to(proposal, output_format, force=force, yes=yes):
                return 1
            options_of_run = ApplyOptions(parallelism, lock_timeout, task.single_use, wait=not no_wait)
            return carry_out(task, options_of_run, output, wait_timeout)


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


def _proposal(
    plan_file: str | None, options: PlanOptions, address: str | None, namespace: str | None, *, yes: bool
) -> AbstractContextManager[Proposal]:
    from fleetctl.cli.apply_task import proposed_by_files, proposed_by_plan
    from fleetctl.cli.planning import Where

    if plan_file is None:
        return proposed_by_files(options, Where(None, address, namespace))
    return proposed_by_plan(plan_file, address, force=options.force, yes=yes)
