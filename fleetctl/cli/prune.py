"""`fleetctl prune`: removes weights that no fleet file names from the disks of nodes, or runs that no history keeps."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.apply.node_jobs import PRUNE, PRUNE_WORDING, JobRunner, ask_caches
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import confirm, say
from fleetctl.cli.identity import new_job_id, starter
from fleetctl.cli.old_runs import prune_runs
from fleetctl.cli.prefetch import NodeLabels
from fleetctl.cli.process import invocation_on_one_cluster
from fleetctl.cli.reporting import show_answer
from fleetctl.documents.cold import NodeCache, Pruned
from fleetctl.documents.quantity import count_of, format_bytes
from fleetctl.errors import UsageError
from fleetctl.inventory.jobs import CACHES
from fleetctl.planner.complete import require_complete
from fleetctl.render.report.of_weights import ID_SHOWN, pruned_report
from fleetctl.workflow.cluster import read
from fleetctl.workflow.cold import fleets_in, named_weights, selected
from fleetctl.workflow.dashboard import live_source

app = command_app(
    "fleetctl prune -f fleets/prod.yaml --dry-run",
    "fleetctl prune -f fleets/prod.yaml --nodes fleet.io/pool=h100",
    "fleetctl prune -f fleets/prod.yaml --runs   # ended runs beyond spec.history",
    exit_codes="0 removed, or nothing to remove, 1 error, or not confirmed, 3 a node did not answer, or "
               "something could not be removed, 64 usage")


@app.command()
def prune(
    *,
    files: flags.Files,
    nodes: NodeLabels = None,
    runs: Annotated[bool, typer.Option(
        "--runs", help="Delete ended runs that spec.history does not keep, instead of weights.")] = False,
    where: flags.Cluster,
    dry_run: flags.DryRun = False,
    yes: flags.Yes = False,
    output_format: flags.Format = "table",
) -> int:
    """Remove weights that no fleet file names from the disks of nodes.

    Give the fleet files of all fleets on the cluster. Only the folders that fleetctl fetches weights into are examined.
    Weights that a process on the node uses or a replica serves stay. No replica is touched.

    With --runs it deletes what every apply deletes a part of: ended runs beyond spec.history that nothing needs.
    """
    if runs and nodes:
        raise UsageError("--runs and --nodes: runs belong to no node")
    invocation = invocation_on_one_cluster(where.address)
    fleets = fleets_in(invocation, files)
    with live_source(invocation, where, fleets[0].cluster) as source:
        if runs:
            pruned = prune_runs(invocation, source.client, fleets, source.namespace, dry_run=dry_run, yes=yes)
            if pruned is None:
                return 1
            show_answer(pruned, output_format, pruned_report)
            return pruned.exit_code
        seen = read(invocation, source)
        require_complete(seen)
        names, kept = {node.id: node.name for node in seen.nodes}, named_weights(fleets, seen)
        asker = JobRunner(source.client, source.namespace, starter(), PRUNE_WORDING)
        with invocation.working("asking the nodes"):
            found = ask_caches(asker, CACHES, new_job_id(CACHES), {node.id: kept for node in selected(seen, nodes)})
        removable = {node.node_id: [one.artifact for one in node.artifacts if not one.used] for node in found}
        removable = {node_id: artifacts for node_id, artifacts in removable.items() if artifacts}
        if removable and not dry_run:
            if not _agreed(found, names, yes=yes):
                return 1
            done = {node.node_id: node for node in ask_caches(asker, PRUNE, new_job_id(PRUNE), removable)}
            found = [_after(node, done[node.node_id]) if node.node_id in removable else node for node in found]
    answer = Pruned(dry_run=dry_run, nodes=sorted(
        (node.model_copy(update={"node": names[node.node_id]}) for node in found), key=lambda node: node.node))
    show_answer(answer, output_format, pruned_report)
    return answer.exit_code


def _agreed(found: list[NodeCache], names: dict[str, str], *, yes: bool) -> bool:
    going = [(node, one) for node in found for one in node.artifacts if not one.used]
    for node, one in going:
        say("remove", f"{format_bytes(one.bytes)} of {names[node.node_id]}: {node.root}/{one.artifact[:ID_SHOWN]}...")
    whole = format_bytes(sum(one.bytes for _, one in going))
    nodes = count_of(len({node.node_id for node, _ in going}), "node")
    return confirm(f"Remove {whole} from {nodes}?", yes=yes, otherwise="nothing was removed")


def _after(before: NodeCache, after: NodeCache) -> NodeCache:
    """Return the cache of a node after the removal; artifacts that `after` does not list were already gone."""
    if after.trouble:
        return before.model_copy(update={"trouble": after.trouble})
    now = {one.artifact: one for one in after.artifacts}
    return before.model_copy(update={"artifacts": [
        one if one.used else now.get(one.artifact, one.model_copy(update={"removed": True}))
        for one in before.artifacts]})
