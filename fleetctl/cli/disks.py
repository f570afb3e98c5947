"""What lies on the disks of nodes, and what the head keeps of ended runs: `fleetctl prefetch` and `fleetctl prune`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any

import typer

from fleetctl.apply.follow import Wording
from fleetctl.apply.node_jobs import PREFETCH, PREFETCH_WORDING, PRUNE, ask_caches
from fleetctl.apply.node_jobs import prefetch as fetch_onto
from fleetctl.apply.old_runs import Deletion, default_history, delete_runs, find_old
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import say
from fleetctl.cli.nodes import job_runner, node_of
from fleetctl.cli.process import invocation_on_one_cluster, this_invocation
from fleetctl.cli.reporting import show_answer
from fleetctl.cli.verb import OnCluster, new_job_id, on_cluster, perform
from fleetctl.doctor.fleet import candidates
from fleetctl.documents.answers import FetchedWeights, NodeCache, Prefetched, Pruned, PrunedRuns
from fleetctl.documents.canonical import short_hash
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.documents.plan import PlanHistory
from fleetctl.documents.quantity import count_of, format_bytes, grouped
from fleetctl.documents.selector import LabelSelector
from fleetctl.errors import ApplyError, FleetctlError, FleetFileError, UsageError
from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import CACHES, Job
from fleetctl.inventory.json_values import moment_of_ms
from fleetctl.planner.cold import WeightsPart, orders_for, parts_of
from fleetctl.planner.options import file_flags
from fleetctl.render.report.of_weights import prefetched_report, pruned_report
from fleetctl.workflow.invocation import Invocation
from fleetctl.workflow.scaling import model_of

app = command_app()
NodeLabels = Annotated[Any, flags.option(
    "--nodes", metavar="LABELS", parser=flags.label_selector,
    help="Only nodes with these labels, such as pool=a100 or 'zone in (a, b),!spot'.")]
SAID_EVERY = 1000


@app.command(epilog=epilog(
    "fleetctl prefetch Qwen/Qwen3-8B -f fleets/shared-weights",
    "fleetctl prefetch Qwen/Qwen3-8B -f fleets/shared-weights --node node-b",
    exit_codes="0 all nodes have them, 1 error, or no node has them, 3 some nodes have them, 64 usage, 130 "
               "interrupted"))
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
        help="Time limit per node; a node keeps what it has fetched by then. [default: 30m]")] = 1800,
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
    with on_cluster(invocation, where, fleet) as here:
        seen = here.read(whole=True)
        parts = nodes_for(fleet, wanted, seen, _named_nodes(seen, node) if node else
                          selected(seen, nodes) if nodes else None)
        if not parts:
            raise FleetctlError(f"no node may run {wanted.key} now",
                                hint="`fleetctl inventory` lists the nodes")
        names = {seen_node.id: seen_node.name for seen_node in seen.nodes}
        say("note", f"{wanted.key}: fetching onto {count_of(len(parts), 'node')}")
        with invocation.working("fetching"):
            try:
                rows = fetch_onto(job_runner(here, PREFETCH_WORDING), new_job_id(PREFETCH),
                                  orders_for(wanted, parts, find_ready(seen)), timeout,
                                  lambda row: _report(row, names))
            except KeyboardInterrupt:
                say("note", "stopped: nodes keep what they have fetched; the same command continues")
                raise
    rows = [row.model_copy(update={"node": names[row.node_id]}) for row in rows]
    answer = Prefetched(fleet=fleet.name, model=wanted.key,
                        rows=sorted(rows, key=lambda row: (row.node, row.artifact)))
    show_answer(answer, output_format, prefetched_report)
    return answer.exit_code


def nodes_for(
    fleet: ResolvedFleet, model: ResolvedModel, seen: Inventory, chosen: Sequence[Node] | None
) -> Mapping[str, Sequence[WeightsPart]]:
    """Return the parts of a model's weights to fetch, by node id.

    All parts on the `chosen` nodes, if given; otherwise the parts of the members that may run on each node.
    """
    parts = parts_of(model)
    if not parts:
        raise FleetctlError(f"{model.key} has no weights in the fleet file, so there is nothing to fetch",
                            hint="see `fleetctl explain spec.models.workers.members.weights`")
    if chosen is not None:
        return {node.id: parts for node in chosen}
    by_node: dict[str, list[WeightsPart]] = {}
    for part in parts:
        members = [member for way in model.alternatives for group in way.workers for member in group.members
                   if member.weights and member.weights.index == part.weights.index]
        for node in {node.id: node for member in members for node in candidates(fleet, member, seen.nodes)}.values():
            by_node.setdefault(node.id, []).append(part)
    return {node.id: by_node[node.id] for node in seen.nodes if node.id in by_node}


def _named_nodes(seen: Inventory, names: Sequence[str]) -> list[Node]:
    """Return the nodes with these names or ids, each once; raises FleetctlError if one of them is not alive."""
    nodes = list({node.id: node for node in (node_of(seen, name) for name in names)}.values())
    if gone := [node.name for node in nodes if node.state != "ALIVE"]:
        raise FleetctlError(f"{', '.join(gone)}: not alive")
    return nodes


def selected(seen: Inventory, selector: LabelSelector | None) -> list[Node]:
    """Return the living nodes with these labels; raises FleetctlError if none has them."""
    nodes = [node for node in seen.nodes
             if node.state == "ALIVE" and (selector is None or selector.matches(node.all_labels))]
    if selector is not None and not nodes:
        raise FleetctlError(f"no node with the labels {selector.text} is alive",
                            hint="`fleetctl inventory` lists the nodes")
    return nodes


def _report(row: FetchedWeights, names: dict[str, str]) -> None:
    got = row.fetched
    text = f"{format_bytes(got.bytes)} in {got.seconds:.1f}s" if got else row.trouble
    say("fetched" if got else "warning", f"{names[row.node_id]}: {text}")


@app.command(epilog=epilog(
    "fleetctl prune -f fleets/prod.yaml --dry-run",
    "fleetctl prune -f fleets/prod.yaml --nodes fleet.io/pool=h100",
    "fleetctl prune -f fleets/prod.yaml --runs   # ended runs beyond spec.history",
    exit_codes="0 removed, or nothing to remove, 1 error, or not confirmed, 3 a node did not answer, or "
               "something could not be removed, 64 usage"))
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
    """Remove weights that no fleet file names, and compile caches, from nodes' disks.

    Give the fleet files of all fleets on the cluster. Only the folders that fleetctl fetches weights into are examined.
    Weights and caches that a process on the node uses or a replica serves stay. No replica is touched.

    With --runs it deletes what every apply deletes a part of: ended runs beyond spec.history that nothing needs.
    """
    if runs and nodes:
        raise UsageError("--runs and --nodes: runs belong to no node")
    invocation = invocation_on_one_cluster(where.address)
    fleets = fleets_in(invocation, files)
    with on_cluster(invocation, where, fleets[0]) as here:
        def tell(pruned: Pruned) -> int:
            show_answer(pruned, output_format, pruned_report)
            return pruned.exit_code

        if runs:
            return _prune_runs(here, fleets, tell, dry_run=dry_run, yes=yes)
        return _prune_weights(here, fleets, nodes, file_flags(files), tell, dry_run=dry_run, yes=yes)


def _prune_weights(
    here: OnCluster, fleets: Sequence[ResolvedFleet], selector: LabelSelector | None, files: str,
    tell: Callable[[Pruned], int], *, dry_run: bool, yes: bool,
) -> int:
    """Ask the nodes what they keep, list what nothing needs, ask, and remove it; `files` = the flags with the files."""
    seen = here.read(whole=True)
    names, kept = {node.id: node.name for node in seen.nodes}, named_weights(fleets, seen)
    left = f"`fleetctl prune {files} --dry-run` shows what is still there"
    runner = job_runner(here, Wording("prune job", left, left))
    with here.invocation.working("asking the nodes"):
        caches = ask_caches(runner, CACHES, new_job_id(CACHES), {node.id: kept for node in selected(seen, selector)})
    unused = [(cache, artifact) for cache in caches for artifact in cache.artifacts if not artifact.used]
    removable = grouped((cache.node_id, artifact.artifact) for cache, artifact in unused)

    def told(now: Sequence[NodeCache]) -> int:
        return tell(Pruned(dry_run=dry_run, nodes=sorted(
            (cache.model_copy(update={"node": names[cache.node_id]}) for cache in now), key=lambda cache: cache.node)))

    def remove() -> int:
        after = {cache.node_id: cache for cache in ask_caches(runner, PRUNE, new_job_id(PRUNE), removable)}
        return told([_after(cache, after[cache.node_id]) if cache.node_id in removable else cache for cache in caches])

    if dry_run or not removable:
        return told(caches)
    whole = format_bytes(sum(artifact.bytes for _, artifact in unused))
    return perform(
        remove, f"Remove {whole} from {count_of(len(removable), 'node')}?", yes=yes, otherwise="nothing was removed",
        shown=[("remove", f"{format_bytes(artifact.bytes)} of {names[cache.node_id]}: " + (
            f"a compile cache of {artifact.cache}" if artifact.cache else f"{cache.root}/{short}..."))
               for cache, artifact in unused for short in [short_hash(artifact.artifact)]])


def fleets_in(invocation: Invocation, files: Sequence[str]) -> list[ResolvedFleet]:
    """Return the one fleet that all files form together, else the fleet of each file; raises FleetFileError."""
    try:
        return [load_fleet(files, stdin=invocation.stdin)]
    except FleetFileError as together:
        try:
            return [load_fleet([file], stdin=invocation.stdin) for file in files]
        except FleetFileError:
            raise together from None


def named_weights(fleets: Sequence[ResolvedFleet], seen: Inventory) -> list[str]:
    """Return every artifact that a model of the fleets names or a replica of the cluster serves."""
    files = [member.weights.index for fleet in fleets for model in fleet.models for way in model.alternatives
             for group in way.workers for member in group.members if member.weights]
    served = [member.weights.artifact for replica in seen.replicas for member in replica.members if member.weights]
    return list(dict.fromkeys((*files, *served)))


def _after(before: NodeCache, after: NodeCache) -> NodeCache:
    """Return the cache of a node after the removal; artifacts that `after` does not list were already gone."""
    if after.trouble:
        return before.model_copy(update={"trouble": after.trouble})
    now = {artifact.artifact: artifact for artifact in after.artifacts}
    return before.model_copy(update={"artifacts": [
        artifact if artifact.used else now.get(artifact.artifact, artifact.model_copy(update={"removed": True}))
        for artifact in before.artifacts]})


def _prune_runs(
    here: OnCluster, fleets: Sequence[ResolvedFleet], tell: Callable[[Pruned], int], *, dry_run: bool, yes: bool,
) -> int:
    """Find the runs that the histories of `fleets` do not keep, ask, and delete them; returns the exit code.

    Raises InventoryError, and ApplyError if the cluster deletes no jobs.
    """
    client = here.source.client
    by_id = dict[str, Job]()  # each once: those of no fleet are found for every fleet
    with here.invocation.working("reading the list of jobs and what needs them"):
        for fleet in fleets:
            keep = PlanHistory(**fleet.history.model_dump()) if fleet.history else default_history()
            for job in find_old(client, fleet.name, here.source.namespace, keep, time.time()):
                by_id.setdefault(job.submission_id, job)
    old = list(by_id.values())

    def told(removed: Collection[str] = ()) -> int:
        rows = grouped(((job.metadata.get("fleet") or "", job.metadata.get("verb") or ""), job) for job in old)
        return tell(Pruned(dry_run=dry_run, nodes=[], runs=[
            PrunedRuns(fleet=name, verb=verb, found=len(jobs), newest=moment_of_ms(jobs[-1].start_time_ms),
                       removed=sum(job.submission_id in removed for job in jobs))
            for (name, verb), jobs in sorted(rows.items())]))

    def delete() -> int:
        with here.invocation.working(f"deleting {count_of(len(old), 'run')}"):
            done = _deleted(client, old)
        if done.problem and not done.deleted:
            raise ApplyError(f"no run was deleted: {done.problem}",
                             hint="give an --address that passes DELETE to Ray's dashboard")
        if done.problem:
            say("warning", f"not all runs were deleted: {done.problem}")
        return told(frozenset(done.deleted))

    if dry_run or not old:
        return told()
    return perform(delete, f"Delete {count_of(len(old), 'ended run')} and their place in the history?", yes=yes,
                   otherwise="nothing was deleted")


def _deleted(client: DashboardClient, old: Sequence[Job]) -> Deletion:
    """Delete the runs, and say from time to time how many are gone: with a long list each takes a part of a second."""
    done = Deletion()
    for first in range(0, len(old), SAID_EVERY):
        part = delete_runs(client, old[first:first + SAID_EVERY])
        done = Deletion([*done.deleted, *part.deleted], part.problem)
        if done.problem or first + SAID_EVERY >= len(old):
            break
        say("note", f"{len(done.deleted)} of {len(old)} runs deleted")
    return done
