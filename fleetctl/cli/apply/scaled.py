"""An apply of one model, to a number of replicas that is not the file's: the run behind `scale` and `deploy`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from fleetctl.apply.request import ApplyOptions
from fleetctl.cli.apply.agreement import agreed_to
from fleetctl.cli.apply.follow import carry_out
from fleetctl.cli.apply.output import ApplyFormat, ApplyOutput
from fleetctl.cli.completion import complete_model_keys
from fleetctl.planner.options import PlanOptions
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.proposal import proposed_by_fleet
from fleetctl.workflow.scaling import Scaling

ModelArgument = Annotated[str, typer.Argument(
    metavar="MODEL", show_default=False, autocompletion=complete_model_keys, help="A model key of the fleet file.")]


@dataclass(frozen=True, slots=True)
class StartFlags:
    """The flags that `scale` and `deploy` share."""

    files: Sequence[str]
    where: Where
    yes: bool
    force: bool
    lock_timeout_s: float
    wait_timeout_s: float | None
    output_format: ApplyFormat


def apply_scaled(invocation: Invocation, found: Scaling, replicas: int, start: StartFlags) -> int:
    """Show the plan, ask, apply; returns the exit code."""
    output = ApplyOutput(start.output_format)
    options = PlanOptions((found.model,), force=start.force, files=tuple(start.files))
    with output.ends_with_summary(), \
            proposed_by_fleet(invocation, found.to(replicas), options, start.where) as proposal:
        output.plan = proposal.task.plan
        if not agreed_to(invocation, proposal, start.output_format, force=start.force, yes=start.yes):
            return 1
        return carry_out(proposal.task, ApplyOptions(lock_timeout_s=start.lock_timeout_s), output, start.wait_timeout_s)
