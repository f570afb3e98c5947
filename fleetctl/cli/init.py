"""`fleetctl init`: a first fleet file, for the nodes of a cluster or for named models. Read-only on the cluster."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import message_console, say, write_document
from fleetctl.cli.process import this_invocation
from fleetctl.documents.inventory import Inventory
from fleetctl.errors import FleetctlError, InventoryError, UsageError
from fleetctl.fleetfile.guess import dns_label_meant
from fleetctl.importers.first_fleet import FirstFleet, first_fleet, too_large
from fleetctl.importers.write import problems_of
from fleetctl.render.problems import render_problems
from fleetctl.workflow.cluster import read_from
from fleetctl.workflow.contexts import given_address
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.output_files import refuse_to_overwrite, write_file

app = command_app(
    "fleetctl init --address http://ray-head:8265",
    "fleetctl init fleets/prod.yaml --model Qwen/Qwen3-8B --engine vllm",
    "fleetctl init --inventory snapshot.json --model org/a-8B --model org/b-70B",
    exit_codes="0 written, 1 error, or the file exists, 64 usage")
STDOUT = Path("-")


@app.command()
def init(
    *,
    file: Annotated[Path | None, typer.Argument(
        metavar="FILE", show_default=False, help="Where to write the fleet file; the same as --out.")] = None,
    out: Annotated[Path | None, flags.option(
        "--out", "-o", metavar="FILE", dir_okay=False, allow_dash=True,
        help="Where to write the fleet file; - for standard output. [default: fleet.yaml]")] = None,
    model: Annotated[list[str] | None, flags.option(
        "--model", metavar="NAME", help="Include this model, by its name on Hugging Face; repeatable.")] = None,
    engine: Annotated[
        Literal["vllm", "sglang", "llama.cpp"], typer.Option("--engine", help="Engine of the models.")] = "vllm",
    fleet: Annotated[str | None, flags.option(
        "--fleet", metavar="NAME", help="Name of the fleet. [default: the name of the file]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    where: flags.Source,
) -> int:
    """Write a first fleet file for the nodes of a cluster.

    The file is commented, and its models fit the cards of the cluster or of a snapshot. With --model no cluster is
    needed. The resources of a model are guessed from its name, and marked as such in the file.
    """
    if file and out:
        raise UsageError(f"two files are named: {file} and {out}", hint="name one")
    out = file or out or Path("fleet.yaml")
    refuse_to_overwrite("--out", out if out != STDOUT else None, (where.inventory,))
    if out != STDOUT and out.exists() and not force:
        raise FleetctlError(f"{out} exists", hint="pass --force to overwrite it, or name another file with --out")
    name = flags.fleet_name(fleet) if fleet else dns_label_meant(out.stem) or "fleet"
    seen = _nodes(this_invocation(), where, required=not model)
    wanted = FirstFleet(name, tuple(model or ()), engine, seen, where.address, where.namespace)
    text = first_fleet(wanted)
    problems = problems_of(text, str(out))
    if problems:
        render_problems(problems, message_console())
        raise FleetctlError("the result would not be a valid fleet file; nothing was written")
    for key in too_large(wanted):
        say("warning", f"{key} does not fit on one node: make it a gang of a Leader and Workers, as the file says")
    if out == STDOUT:
        write_document(text)
    else:
        write_file(out, text, mode=0o644, make_folder=True)
        say("init", f"wrote {out}; review it, then: fleetctl plan -f {quote(str(out))}"
                    + (f" --inventory {quote(str(where.inventory))}" if where.inventory else ""))
    return 0


def _nodes(invocation: Invocation, where: Where, *, required: bool) -> Inventory | None:
    """Return the cluster's inventory; None if it cannot be read, is not `required` and was not requested by a flag."""
    try:
        seen = read_from(invocation, where, None)
    except InventoryError as error:
        if where.inventory or given_address(invocation, where.address):
            raise
        if required:
            hint = "; ".join(part for part in (error.hint, "or give --model NAME") if part)
            raise InventoryError(error.message, hint=hint) from None
        invocation.say("note", f"written without the nodes of a cluster: {error.message}; to plan without a cluster, "
                               "describe its nodes: fleetctl inventory --add-node 8xH100 --format json > lab.json")
        return None
    say("warning", *seen.warnings)
    return seen
