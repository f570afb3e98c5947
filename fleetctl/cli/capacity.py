"""`fleetctl capacity`: how many more replicas would fit, where, and what stops one more. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.help import epilog
from fleetctl.cli.options import (
    AddressOption,
    AdoptFromOption,
    FormatOption,
    InventoryOption,
    NamespaceOption,
    OptionalFilesOption,
    OutputFormat,
)

if TYPE_CHECKING:
    from fleetctl.documents.capacity import Capacity

EPILOG = epilog(
    examples=[
        "fleetctl capacity -f fleets/prod.yaml",
        "fleetctl capacity -f fleets/prod.yaml --model openai-community/gpt2",
        "fleetctl capacity --shape 8                              # 8 whole GPUs on one node",
        "fleetctl capacity --shape 2x8,vram=120Gi                 # a gang of 2 members with 8 GPUs each",
        'fleetctl capacity --shape "gpus=0.5,vram=16Gi,cpus=2,selector=ray.io/accelerator-type=in(L4, A10G)"',
    ],
    exit_codes="0 counted, also when nothing fits, 1 error, 64 usage",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("capacity", epilog=EPILOG)(capacity)


def capacity(
    files: OptionalFilesOption = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="MODEL", show_default=False, autocompletion=complete_model_keys,
                     help="Only this model of the fleet; repeatable. [default: all of them]"),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="SHAPE", show_default=False,
                     help="A replica of this shape instead: 8, 0.5, 2x8 (a gang), or gpus=, vram=, cpus=, memory=, "
                          "selector=KEY=VALUE, sameLabel=, ranksPerNode= with commas between; xN for a gang of N."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1_000_000, help="Stop counting here.")
    ] = 100_000,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    inventory: InventoryOption = None,
    output_format: FormatOption = OutputFormat.TABLE,
    adopt_from: AdoptFromOption = None,
) -> int:
    """Show how many more replicas would fit, and where.

    Beside what runs now, and with -f also beside the new replicas of the plan. Each model or shape is counted by
    itself. Nothing is changed.
    """
    from fleetctl.cli.asking import read_world
    from fleetctl.errors import UsageError
    from fleetctl.planner.questions.capacity import capacity as count
    from fleetctl.planner.questions.shape_syntax import typed_shape

    if not files and not shape:
        raise UsageError("capacity of what?", hint="give -f FLEET for its models, or --shape 8 for any shape")
    if model and not files:
        raise UsageError("--model names a model of a fleet file", hint="give the file with -f")
    for text in shape or ():
        typed_shape(text)  # a slip of the finger is told before the cluster is asked
    world = read_world(files, inventory=inventory, address=address, namespace=namespace, adopt_from=adopt_from)
    _show(count(world, models=model or (), shapes=shape or (), limit=limit), output_format)
    return 0


def _show(answer: Capacity, output_format: OutputFormat) -> None:
    from fleetctl.cli.console import result_console, write_result

    if output_format is OutputFormat.JSON:
        from fleetctl.render.answer_json import render_answer_json

        write_result(render_answer_json(answer))
    else:
        from fleetctl.render.capacity_table import render_capacity

        render_capacity(answer, result_console())
