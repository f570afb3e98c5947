"""`fleetctl what-if`: plan the fleet on a world that is changed in thought. Writes nothing, ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.help import epilog
from fleetctl.cli.options import (
    AddressOption,
    AdoptFromOption,
    DetailedExitCodeOption,
    FilesOption,
    FormatOption,
    InventoryOption,
    NamespaceOption,
    OutputFormat,
)

if TYPE_CHECKING:
    from fleetctl.documents.what_if import WhatIf

EPILOG = epilog(
    examples=[
        "fleetctl what-if -f fleets/prod.yaml --lose-node node-a",
        "fleetctl what-if -f fleets/prod.yaml --cordon fleet.io/pool=l4 --scale openai-community/gpt2=20",
        'fleetctl what-if -f fleets/prod.yaml --add-node 8xH200 --add-node "like:node-a x2"',
        "fleetctl what-if -f fleets/prod.yaml --each-node --detailed-exitcode   # N-1, in CI",
    ],
    exit_codes="0 answered, 1 error, 64 usage; with --detailed-exitcode as for plan:\n"
               "  2 changes, 3 something has no place (with --each-node: after the loss of some node)",
)

LoseOption = Annotated[
    list[str] | None,
    typer.Option("--lose-node", metavar="NODE", show_default=False,
                 help="Suppose this node dies, by name or id; repeatable."),
]
CordonOption = Annotated[
    list[str] | None,
    typer.Option("--cordon", metavar="NODE|KEY=VALUE", show_default=False,
                 help="Suppose nothing new goes to this node, or to the nodes with this label; repeatable."),
]
AddOption = Annotated[
    list[str] | None,
    typer.Option("--add-node", metavar="SHAPE", show_default=False,
                 help="Suppose a new node: 8xH200, like:NODE, or gpus=, type=, vram=, cpus=, memory=, label=KEY=VALUE "
                      "with commas between; xN for N of them; repeatable."),
]
ScaleOption = Annotated[
    list[str] | None,
    typer.Option("--scale", metavar="MODEL=N", show_default=False,
                 help="Suppose the fleet file wants N replicas of this model; repeatable."),
]
EachOption = Annotated[
    bool,
    typer.Option("--each-node", help="Also tell for every node what its loss alone would mean, with the plan applied."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("what-if", epilog=EPILOG)(what_if)


def what_if(
    files: FilesOption,
    lose_node: LoseOption = None,
    cordon: CordonOption = None,
    add_node: AddOption = None,
    scale: ScaleOption = None,
    each_node: EachOption = False,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    inventory: InventoryOption = None,
    output_format: FormatOption = OutputFormat.TABLE,
    detailed_exitcode: DetailedExitCodeOption = False,
    adopt_from: AdoptFromOption = None,
) -> int:
    """Show what a plan would say if nodes were lost or added.

    Lost replicas are planned again on what is left, and the result is compared with today's plan. All changes hold
    at once. Nothing is changed in the cluster or in any file.
    """
    from fleetctl.cli.asking import read_world
    from fleetctl.planner.questions.changes import Changes
    from fleetctl.planner.questions.what_if import what_if as answer_what_if

    supposed = Changes(tuple(lose_node or ()), tuple(cordon or ()), tuple(add_node or ()), tuple(scale or ()))
    world = read_world(files, inventory=inventory, address=address, namespace=namespace, adopt_from=adopt_from)
    answer = answer_what_if(world, supposed, each_node=each_node)
    _show(answer, output_format)
    return answer.exit_code if detailed_exitcode else 0


def _show(answer: WhatIf, output_format: OutputFormat) -> None:
    from fleetctl.cli.console import result_console, write_result

    if output_format is OutputFormat.JSON:
        from fleetctl.render.answer_json import render_answer_json

        write_result(render_answer_json(answer))
    else:
        from fleetctl.render.what_if_table import render_what_if

        render_what_if(answer, result_console())
