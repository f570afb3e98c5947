"""`fleetctl capacity`: how many more replicas would fit, where, and what prevents another. Read-only."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.completion import complete_model_keys
from fleetctl.cli.process import refuse_two_readers, this_invocation
from fleetctl.cli.reporting import show_answer
from fleetctl.errors import UsageError
from fleetctl.planner.options import chosen_by
from fleetctl.planner.questions.shape_syntax import typed_shape
from fleetctl.render.report.of_questions import capacity_report
from fleetctl.workflow.cluster import read_scenario

app = command_app(
    "fleetctl capacity -f fleets/prod.yaml",
    "fleetctl capacity -f fleets/prod.yaml --model openai-community/gpt2",
    "fleetctl capacity --shape 8               # 8 whole GPUs on one node",
    "fleetctl capacity --shape 2x8,vram=120Gi  # 2 members with 8 GPUs each",
    'fleetctl capacity --shape "gpus=0.5,selector=fleet.io/pool=in(l4, a10g)"',
    exit_codes="0 counted, even if nothing fits, 1 error, 64 usage")


@app.command()
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
    if selector:
        named = {key: labels for key, labels in scenario.fleet.labels.items() if not model or key in model}
        model = chosen_by(selector, named)
    with invocation.working("counting"):
        answer = count(scenario, models=model or (), shapes=shape or (), limit=limit)
    show_answer(answer, output_format, capacity_report)
    return 0
