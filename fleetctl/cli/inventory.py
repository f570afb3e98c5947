"""`fleetctl inventory`: show what runs where, or save it for `plan --inventory`. Sends only GETs."""

from __future__ import annotations

from typing import Annotated

from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say
from fleetctl.cli.process import refuse_two_readers, this_invocation
from fleetctl.cli.reporting import show_answer
from fleetctl.documents.inventory import Inventory, NodeResources
from fleetctl.render.report.of_inventory import inventory_report
from fleetctl.workflow.cluster import fleet_of, read_from

app = command_app(
    "fleetctl inventory --address http://ray-head:8265",
    "fleetctl inventory -f fleets/prod.yaml --format json > snapshot.json",
    'fleetctl inventory --add-node "8xH100 x2" --format json > lab.json',
    exit_codes="0 everything was read, 1 error, or something could not be read, 64 usage")


@app.command()
def inventory(
    *,
    files: flags.ClusterFiles = None,
    where: flags.Source,
    add_node: Annotated[list[str] | None, flags.option(
        "--add-node", metavar="SHAPE",
        help="Add a hypothetical node to --inventory, or to an empty inventory, in the syntax of what-if: 8xH200, "
             "'gpus=8,type=H200,label=pool=a x4'; repeatable.")] = None,
    output_format: flags.Format = "table",
) -> int:
    """Show the nodes, what holds their cards, and all replicas.

    Reads the Ray dashboard, or an inventory document. Parts that could not be read are listed on standard error, and
    the rest is shown. With --add-node no cluster is contacted.
    """
    from fleetctl.planner.placement.policies import policy_of, slot_notes  # NumPy, which --help does not need
    from fleetctl.planner.questions.new_node import has_plenty, new_nodes

    refuse_two_readers(files or (), where.inventory)
    invocation = this_invocation()
    fleet = fleet_of(invocation, files)
    if add_node and not where.inventory:
        seen = Inventory(observed_at=invocation.now(), source="a snapshot by hand")
    else:
        seen = read_from(invocation, where, fleet, ages=True)
    plenty = False  # of CPUs or memory, if a shape does not give them
    for shape in add_node or ():
        # without totals in use the claims of the listed replicas count: they may be added to the document by hand
        nodes, _ = new_nodes(shape, seen)
        plenty = plenty or any(has_plenty(node) for node in nodes)
        fresh = [node.model_copy(update={"resources": NodeResources(total=node.resources.total)}) for node in nodes]
        seen = seen.model_copy(update={"nodes": [*seen.nodes, *fresh]})
    policies = fleet.policies if fleet else ()
    in_force = {node.id: policy_of(node, policies) for node in seen.nodes}
    show_answer(seen, output_format, lambda shown: inventory_report(shown, in_force))
    say("warning", *seen.warnings)
    if not seen.complete:
        say("error", "the inventory is incomplete; plan and apply refuse it")
    for note in slot_notes(seen.nodes, policies):
        say("warning" if note.level == "warning" else "note", note.message)
    if plenty:
        say("note", "no CPUs or memory were given for the added nodes, so plans never run short of them; to give them: "
                    "gpus=8,type=H200,cpus=96,memory=1Ti")
    return 0 if seen.complete else 1
