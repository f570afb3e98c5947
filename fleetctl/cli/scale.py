"""`fleetctl scale MODEL --replicas N`: an apply of one model, up to a number of replicas from the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.apply.output import FormatOption
from fleetctl.cli.apply.scaled import apply_scaled
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say
from fleetctl.cli.process import this_invocation
from fleetctl.documents.fleet import MAX_REPLICAS
from fleetctl.errors import UsageError
from fleetctl.workflow.scaling import look_up

app = command_app(
    "fleetctl scale openai-community/gpt2 --replicas 5 -f fleets/demo.yaml",
    "fleetctl scale openai-community/gpt2 --scale-up 2 -f fleets/demo.yaml",
    exit_codes="0 all are ready, 1 error before any action, 3 partial, 4 refused by policy, 5 another apply holds the "
               "lock, 7 --wait-timeout passed, 64 usage, 130 interrupted")


@app.command()
def scale(
    *,
    model: flags.Model,
    files: flags.FlaggedFiles,
    replicas: Annotated[int | None, flags.option(
        "--replicas", metavar="N", min=0, max=MAX_REPLICAS, help="Total number of replicas that should run.")] = None,
    scale_up: Annotated[int | None, flags.option(
        "--scale-up", metavar="N", min=1, max=MAX_REPLICAS, help="Number of replicas to add to the live ones.")] = None,
    dedicated: Annotated[bool, typer.Option(
        "--dedicated", help="Give the new replicas whole cards instead of the share in the file.")] = False,
    start: flags.Starting,
    output_format: FormatOption = "table",
) -> int:
    """Start replicas of a model until N run; it never removes any.

    The fleet file must have the model, and is not changed: if it wants fewer, plans hold the surplus replicas and
    report them. Plans treat a replica started with --dedicated like any other; a replica that an apply or `replace`
    starts in its place gets the file's share again.
    """
    if (replicas is None) == (scale_up is None):
        raise UsageError("give either --replicas N or --scale-up N")
    invocation = this_invocation()
    found = look_up(invocation, files, model, start.where)
    number = replicas if replicas is not None else found.live + (scale_up or 0)
    if number <= found.live:
        say("note", f"{model}: {found.live} are live, {number} wanted; nothing to start. Scale never removes "
                    "replicas; `fleetctl evict` does")
    return apply_scaled(invocation, found, files, number, start, output_format, dedicated=dedicated)
