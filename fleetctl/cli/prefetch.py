"""`fleetctl prefetch MODEL`: fetch its weights onto the disks of nodes before a replica needs them."""

from __future__ import annotations

from typing import Annotated, Any

from fleetctl.apply.node_jobs import PREFETCH, PREFETCH_WORDING, JobRunner
from fleetctl.apply.node_jobs import prefetch as carry_out
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say
from fleetctl.cli.identity import new_job_id, starter
from fleetctl.cli.node_note import node_of
from fleetctl.cli.process import this_invocation
from fleetctl.cli.reporting import show_answer
from fleetctl.documents.cold import FetchedWeights, Prefetched
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.quantity import count_of, format_bytes
from fleetctl.errors import FleetctlError, UsageError
from fleetctl.fleetfile.load import load_fleet
from fleetctl.planner.complete import require_complete
from fleetctl.planner.prefetch import orders_for
from fleetctl.render.report.of_weights import prefetched_report
from fleetctl.workflow.cluster import read
from fleetctl.workflow.cold import nodes_for, selected
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.scaling import model_of

app = command_app(
    "fleetctl prefetch Qwen/Qwen3-8B -f fleets/shared-weights",
    "fleetctl prefetch Qwen/Qwen3-8B -f fleets/shared-weights --node node-b",
    exit_codes="0 all nodes have them, 1 error, or no node has them, 3 some nodes have them, 64 usage, 130 interrupted")
NodeLabels = Annotated[Any, flags.option(
    "--nodes", metavar="LABELS", parser=flags.label_selector,
    help="Only nodes with these labels, such as pool=a100 or 'zone in (a, b),!spot'.")]
DEFAULT_S = 1800.0


@app.command()
def prefetch(
    *,
    model: flags.Model,
    files: flags.FlaggedFiles,
    nodes: NodeLabels = None,
    node: Annotated[list[str] | None, flags.option(
        "--node", metavar="NODE",
        help="Only this node, by name or id; repeatable. [default: every node that may run the model]")] = None,
    timeout: Annotated[float, flags.option(
        "--timeout", metavar="DURATION", parser=flags.expiry_duration,
        help="Time limit per node; a node keeps what it has fetched by then. [default: 30m]")] = DEFAULT_S,
    where: flags.Cluster,
    output_format: flags.Format = "table",
) -> int:
    """Fetch a model's weights onto nodes before a replica needs them.

    The sources are those of a starting replica: the node's own disk, running replicas, the origins in the file. Four
    nodes fetch at a time. Nothing is claimed, and no replica is started. The default nodes are all that may run the
    model, are alive and are not cordoned.
    """
    from fleetctl.planner.sources import find_ready  # NumPy, which --help does not need

    if nodes and node:
        raise UsageError("give either --nodes LABELS or --node NODE")
    invocation = this_invocation()
    fleet = load_fleet(files, stdin=invocation.stdin)
    wanted = model_of(fleet, model)
    with live_source(invocation, where, fleet.cluster) as source:
        seen = read(invocation, source)
        require_complete(seen)
        chosen = _named(seen, node) if node else selected(seen, nodes) if nodes else None
        places = nodes_for(fleet, wanted, seen, chosen)
        if not places:
            raise FleetctlError("no node with these labels is alive" if nodes else f"no node may run {model} now",
                                hint="`fleetctl inventory` lists the nodes")
        names = {one.id: one.name for one in seen.nodes}
        say("note", f"{model}: fetching onto {count_of(len(places), 'node')}")
        with invocation.working("fetching"):
            asker = JobRunner(source.client, source.namespace, starter(), PREFETCH_WORDING)
            try:
                rows = carry_out(asker, new_job_id(PREFETCH), orders_for(wanted, places, find_ready(seen)), timeout,
                                 lambda row: _report(row, names))
            except KeyboardInterrupt:
                say("note", "stopped: nodes keep what they have fetched; the same command continues")
                raise
    rows = [row.model_copy(update={"node": names[row.node_id]}) for row in rows]
    answer = Prefetched(fleet=fleet.name, model=model, rows=sorted(rows, key=lambda row: (row.node, row.artifact)))
    show_answer(answer, output_format, prefetched_report)
    return answer.exit_code


def _named(seen: Inventory, names: list[str]) -> list[Node]:
    found = {node.id: node for node in (node_of(seen, name) for name in names)}
    if gone := [node.name for node in found.values() if node.state != "ALIVE"]:
        raise FleetctlError(f"{', '.join(gone)}: not alive")
    return list(found.values())


def _report(row: FetchedWeights, names: dict[str, str]) -> None:
    got = row.fetched
    text = f"{format_bytes(got.bytes)} in {got.seconds:.1f}s" if got else row.trouble
    say("fetched" if got else "warning", f"{names[row.node_id]}: {text}")
