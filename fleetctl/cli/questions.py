"""Questions about a plan that nothing carries out: `fleetctl capacity`, `fleetctl what-if` and `fleetctl map`.

They differ in what they ask of the same scenario: the fleet and the cluster as they are now. All are read-only.
"""

from __future__ import annotations

from shlex import quote
from typing import Annotated, Literal

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.console import result_console, say, write_document, write_result
from fleetctl.cli.process import refuse_two_readers, this_invocation
from fleetctl.cli.reporting import show_answer
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.names import with_key
from fleetctl.errors import UsageError
from fleetctl.planner.options import chosen_by
from fleetctl.planner.questions.shape_syntax import typed_shape
from fleetctl.render.placement_map import render_placement_map, render_placement_svg
from fleetctl.render.report.of_questions import capacity_report, what_if_report
from fleetctl.workflow.cluster import read_scenario

app = command_app()


@app.command(epilog=epilog(
    "fleetctl capacity -f fleets/prod.yaml",
    "fleetctl capacity -f fleets/prod.yaml --model openai-community/gpt2",
    "fleetctl capacity --shape 8               # 8 whole GPUs on one node",
    "fleetctl capacity --shape 2x8,vram=120Gi  # 2 members with 8 GPUs each",
    'fleetctl capacity --shape "gpus=0.5,selector=fleet.io/pool=in(l4, a10g)"',
    exit_codes="0 counted, even if nothing fits, 1 error, 64 usage"))
def capacity(
    *,
    files: flags.OptionalFiles = None,
    model: Annotated[list[str] | None, flags.option(
        "--model", metavar="MODEL", autocompletion=complete_model_keys,
        help="Count only this model of the fleet; repeatable. [default: all models]")] = None,
    shape: Annotated[list[str] | None, flags.option(
        "--shape", metavar="SHAPE",
        help="Count replicas of this shape instead: 8, 0.5, 2x8 (a gang), or a comma-separated list of gpus=, vram=, "
             "cpus=, memory=, selector=KEY=VALUE, sameLabel=, ranksPerNode=; xN for a gang of N. Repeatable.")] = None,
    selector: flags.Selector = None,
    limit: Annotated[int, typer.Option(
        "--limit", metavar="N", min=1, max=1_000_000, help="Stop counting at N.")] = 100_000,
    where: flags.Source,
    output_format: flags.Format = "table",
    adopt_from: flags.AdoptFrom = None,
) -> int:
    """Show how many more replicas would fit, and where.

    Counts what fits beside the running replicas and, with -f, beside the new replicas of the plan. Each model or shape
    is counted alone. Nothing is changed.
    """
    from fleetctl.planner.questions.capacity import capacity as count  # NumPy, which --help does not need

    if not files and not shape:
        raise UsageError("nothing to count", hint="give -f FLEET for its models, or --shape 8 for any shape")
    if model and not files:
        raise UsageError("--model needs a fleet file", hint="give the file with -f")
    flags.refuse_selector_without(files, selector)
    for text in shape or ():
        typed_shape(text)  # a typo is reported before the cluster is contacted
    refuse_two_readers(files or (), where.inventory)
    invocation = this_invocation()
    scenario = read_scenario(invocation, files, where, adopt_from)
    model = [with_key(name, scenario.fleet.labels) for name in model or ()]
    if selector:
        named = {key: labels for key, labels in scenario.fleet.labels.items() if not model or key in model}
        model = chosen_by(selector, named)
    with invocation.working("counting"):
        answer = count(scenario, models=model, shapes=shape or (), limit=limit)
    show_answer(answer, output_format, capacity_report)
    return 0


@app.command("what-if", epilog=epilog(
    "fleetctl what-if -f fleets/prod.yaml --lose-node node-a",
    "fleetctl what-if -f fleets/ --lose-node ray.io/accelerator-type=L4",
    "fleetctl what-if -f fleets/ --cordon fleet.io/pool=l4 --scale org/model=20",
    'fleetctl what-if -f fleets/ --add-node 8xH200 --add-node "like:node-a x2"',
    "fleetctl what-if -f fleets/ --each-node --detailed-exitcode   # N-1, in CI",
    exit_codes="0 answered, 1 error, 64 usage; with --detailed-exitcode as for plan: 2 changes, 3 something is "
               "unplaced (with --each-node: after the loss of some node)"))
def what_if(
    *,
    files: flags.Files,
    lose_node: Annotated[list[str] | None, flags.option(
        "--lose-node", metavar="NODE|KEY=VALUE", help="Suppose this node, or the nodes with this label, die; "
                                                      "repeatable.")] = None,
    cordon: Annotated[list[str] | None, flags.option(
        "--cordon", metavar="NODE|KEY=VALUE",
        help="Suppose this node, or the nodes with this label, take no new replicas; repeatable.")] = None,
    add_node: Annotated[list[str] | None, flags.option(
        "--add-node", metavar="SHAPE",
        help="Suppose a new node: 8xH200, like:NODE, or a comma-separated list of gpus=, type=, vram=, cpus=, "
             "memory=, label=KEY=VALUE; xN for N such nodes; repeatable.")] = None,
    scale: Annotated[list[str] | None, flags.option(
        "--scale", metavar="MODEL=N",
        help="Suppose the fleet file wants N replicas of this model; repeatable.")] = None,
    each_node: Annotated[bool, typer.Option(
        "--each-node", help="Also show for every node the effect of its loss alone, with the plan applied.")] = False,
    where: flags.Source,
    output_format: flags.Format = "table",
    detailed_exitcode: flags.DetailedExitCode = False,
    adopt_from: flags.AdoptFrom = None,
) -> int:
    """Show the plan for a cluster that has lost or gained nodes.

    Lost replicas are planned again on the remaining nodes, and the result is compared with the current plan. All
    changes apply together. Nothing is changed in the cluster or in any file.
    """
    from fleetctl.planner.questions.changes import Changes  # NumPy, which --help does not need
    from fleetctl.planner.questions.what_if import what_if as answer_what_if

    for text in scale or ():
        if "=" not in text:
            number = next((file for file in files if file.isdecimal()), "N")
            raise UsageError(f"--scale {text}: this is not MODEL=N", hint=f"--scale {quote(f'{text}={number}')}")
    supposed = Changes(tuple(lose_node or ()), tuple(cordon or ()), tuple(add_node or ()), tuple(scale or ()))
    refuse_two_readers(files, where.inventory)
    invocation = this_invocation()
    scenario = read_scenario(invocation, files, where, adopt_from)
    with invocation.working("planning"):
        answer = answer_what_if(scenario, supposed, each_node=each_node)
    show_answer(answer, output_format, what_if_report)
    return answer.exit_code if detailed_exitcode else 0


@app.command("map", epilog=epilog(
    "fleetctl map                                  # what holds which card now",
    "fleetctl map -f fleets/prod.yaml              # and what a plan adds",
    "fleetctl map -f fleets/prod.yaml --format svg > map.svg",
    "fleetctl map --inventory snapshot.json --all",
    exit_codes="0 drawn, 1 error, or something could not be read, 64 usage"))
def show_map(
    *,
    files: flags.OptionalFiles = None,
    selector: flags.Selector = None,
    where: flags.Source,
    output_format: Annotated[
        Literal["table", "svg", "json"], typer.Option("--format", help=flags.FORMAT_HELP)] = "table",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Draw at most N rows in the terminal.")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="Draw every node in its own row in the terminal.")] = False,
    adopt_from: flags.AdoptFrom = None,
) -> int:
    """Draw which replica holds which card.

    Draws a row per node, a cell per card and a letter per model; with -f also the new replicas of the plan. If there
    are more nodes than rows, equal nodes share a row, unless --all is given. With --selector it draws only the nodes
    that the selected models use, and only their new replicas.
    """
    from fleetctl.planner.questions.occupancy import of_models, placement_map  # NumPy, which --help does not need

    refuse_two_readers(files or (), where.inventory)
    flags.refuse_selector_without(files, selector)
    invocation = this_invocation()
    scenario = read_scenario(invocation, files, where, adopt_from, selector)
    with invocation.working("planning"):
        drawn = placement_map(scenario)
    if selector:
        drawn = of_models(drawn, chosen_by(selector, scenario.fleet.labels))
    if output_format == "json":
        write_result(indented_json(drawn))
    elif output_format == "svg":
        write_document(render_placement_svg(drawn))
    else:
        render_placement_map(drawn, result_console(), rows=None if everything else limit)
    if not scenario.inventory.complete:
        say("error", "the inventory is incomplete: there may be more than is drawn")
    return 0 if scenario.inventory.complete else 1
