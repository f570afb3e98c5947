"""`fleetctl what-if`: plan the fleet on a hypothetical cluster. Writes nothing."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.process import refuse_two_readers, this_invocation
from fleetctl.cli.reporting import show_answer
from fleetctl.errors import UsageError
from fleetctl.render.report.of_questions import what_if_report
from fleetctl.workflow.cluster import read_scenario

app = command_app(
    "fleetctl what-if -f fleets/prod.yaml --lose-node node-a",
    "fleetctl what-if -f fleets/ --cordon fleet.io/pool=l4 --scale org/model=20",
    'fleetctl what-if -f fleets/ --add-node 8xH200 --add-node "like:node-a x2"',
    "fleetctl what-if -f fleets/ --each-node --detailed-exitcode   # N-1, in CI",
    exit_codes="0 answered, 1 error, 64 usage; with --detailed-exitcode as for plan: 2 changes, 3 something is "
               "unplaced (with --each-node: after the loss of some node)")


@app.command()
def what_if(
    *,
    files: flags.Files,
    lose_node: Annotated[list[str] | None, flags.option(
        "--lose-node", metavar="NODE", help="Suppose this node dies, by name or id; repeatable.")] = None,
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
