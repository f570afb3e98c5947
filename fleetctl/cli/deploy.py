"""`fleetctl deploy MODEL`: an apply of one model that has no live replica yet."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

from fleetctl.cli import flags
from fleetctl.cli.apply.output import FormatOption
from fleetctl.cli.apply.scaled import apply_scaled
from fleetctl.cli.commands import command_app
from fleetctl.cli.process import this_invocation
from fleetctl.documents.fleet import MAX_REPLICAS
from fleetctl.documents.quantity import count_of
from fleetctl.errors import FleetctlError
from fleetctl.workflow.scaling import look_up

app = command_app(
    "fleetctl deploy org/model -f fleets/prod.yaml",
    "fleetctl deploy org/model --replicas 1 -f fleets/prod.yaml",
    exit_codes="0 all are ready, 1 error before any action, or replicas are already live, 3 partial, 4 refused by "
               "policy, 5 another apply holds the lock, 7 --wait-timeout passed, 64 usage, 130 interrupted")


@app.command()
def deploy(
    *,
    model: flags.Model,
    files: flags.FlaggedFiles,
    replicas: Annotated[int | None, flags.option(
        "--replicas", metavar="N", min=1, max=MAX_REPLICAS,
        help="Number of replicas to start. [default: the number in the file]")] = None,
    start: flags.Starting,
    output_format: FormatOption = "table",
) -> int:
    """Start the first replicas of a model in the fleet file.

    Refused if any replica of the model is live.
    """
    invocation = this_invocation()
    found = look_up(invocation, files, model, start.where)
    if found.live:
        raise FleetctlError(f"{model} has {count_of(found.live, 'live replica')}",
                            hint=f"`fleetctl scale {quote(model)} --replicas N` starts more")
    return apply_scaled(invocation, found, files, replicas if replicas is not None else found.wanted, start,
                        output_format)
