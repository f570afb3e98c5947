"""What lies on the disks of nodes, and what the head keeps of ended runs: `fleetctl prefetch` and `fleetctl prune`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from fleetctl.apply.follow import Wording
from fleetctl.apply.node_jobs import PREFETCH, PREFETCH_WORDING, PRUNE, JobRunner, ask_caches
from fleetctl.apply.node_jobs import prefetch as fetch_onto
from fleetctl.apply.old_runs import Deletion, default_history, delete_runs, find_old
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import confirm, say
from fleetctl.cli.identity import new_job_id, starter
from fleetctl.cli.nodes import node_of
from fleetctl.cli.process import invocation_on_one_cluster, this_invocation
from fleetctl.cli.reporting import show_answer
from fleetctl.doctor.fleet import candidates
from fleetctl.documents.answers import FetchedWeights, NodeCache, Prefetched, Pruned, PrunedRuns
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
from fleetctl.planner.options import file_flags, require_complete
from fleetctl.render.report.of_weights import ID_SHOWN, prefetched_report, pruned_report
from fleetctl.workflow.cluster import read
from fleetctl.workflow.dashboard import live_source
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
    model = wanted.key
    with live_source(invocation, where, fleet.cluster) as source:
        seen = read(invocation, source)
        require_complete(seen)
        chosen = selected(seen, nodes) if nodes else None
        if node:
            chosen = list({one.id: one for one in (node_of(seen, name) for name in node)}.values())
            if gone := [one.name for one in chosen if one.state != "ALIVE"]:
                raise FleetctlError(f"{', '.join(gone)}: not alive")
        places = nodes_for(fleet, wanted, seen, chosen)
        if not places:
            raise FleetctlError(f"no node may run {model} now",
                                hint="`fleetctl inventory` lists the nodes")
        names = {one.id: one.name for one in seen.nodes}
        say("note", f"{model}: fetching onto {count_of(len(places), 'node')}")
        with invocation.working("fetching"):
            asker = JobRunner(source.client, source.namespace, starter(), PREFETCH_WORDING)
            try:
                rows = fetch_onto(asker, new_job_id(PREFETCH), orders_for(wanted, places, find_ready(seen)), timeout,
                                 lambda row: _report(row, names))
            except KeyboardInterrupt:
                say("note", "stopped: nodes keep what they have fetched; the same command continues")
                raise
    rows = [row.model_copy(update={"node": names[row.node_id]}) for row in rows]
    answer = Prefetched(fleet=fleet.name, model=model, rows=sorted(rows, key=lambda row: (row.node, row.artifact)))
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
    found: dict[str, list[WeightsPart]] = {}
    for part in parts:
        members = [member for group in model.workers for member in group.members
                   if member.weights and member.weights.index == part.weights.index]
        for node in {node.id: node for member in members for node in candidates(fleet, member, seen.nodes)}.values():
            found.setdefault(node.id, []).append(part)
    return {node.id: found[node.id] for node in seen.nodes if node.id in found}


def selected(seen: Inventory, selector: LabelSelector | None) -> list[Node]:
    """Return the living nodes with these labels; raises FleetctlError if none has them."""
    found = [node for node in seen.nodes
             if node.state == "ALIVE" and (selector is None or selector.matches(node.all_labels))]
    if selector is not None and not found:
        raise FleetctlError(f"no node with the labels {selector.text} is alive",
                            hint="`fleetctl inventory` lists the nodes")
    return found


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
            pruned = _prune_runs(invocation, source.client, fleets, source.namespace, dry_run=dry_run, yes=yes)
            if pruned is None:
                return 1
            show_answer(pruned, output_format, pruned_report)
            return pruned.exit_code
        seen = read(invocation, source)
        require_complete(seen)
        names, kept = {node.id: node.name for node in seen.nodes}, named_weights(fleets, seen)
        left = f"`fleetctl prune {file_flags(files)} --dry-run` shows what is still there"
        wording = Wording("prune job", left, left)
        asker = JobRunner(source.client, source.namespace, starter(), wording)
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
    files = [member.weights.index for fleet in fleets for model in fleet.models for group in model.workers
             for member in group.members if member.weights]
    served = [member.weights.artifact for replica in seen.replicas for member in replica.members if member.weights]
    return list(dict.fromkeys((*files, *served)))


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


def _prune_runs(
    invocation: Invocation, client: DashboardClient, fleets: Sequence[ResolvedFleet], namespace: str, *,
    dry_run: bool, yes: bool,
) -> Pruned | None:
    """Find the runs that the histories of `fleets` do not keep, ask, and delete them; None = not confirmed.

    Raises InventoryError, and ApplyError if the cluster deletes no jobs.
    """
    found = dict[str, Job]()  # each once: those of no fleet are found for every fleet
    with invocation.working("reading the list of jobs and what needs them"):
        for fleet in fleets:
            keep = PlanHistory(**fleet.history.model_dump()) if fleet.history else default_history()
            for job in find_old(client, fleet.name, namespace, keep, time.time()):
                found.setdefault(job.submission_id, job)
    old = list(found.values())
    removed: frozenset[str] = frozenset()
    if old and not dry_run:
        if not confirm(f"Delete {count_of(len(old), 'ended run')} and their place in the history?", yes=yes,
                       otherwise="nothing was deleted"):
            return None
        with invocation.working(f"deleting {count_of(len(old), 'run')}"):
            done = _deleted(client, old)
        if done.problem and not done.deleted:
            raise ApplyError(f"no run was deleted: {done.problem}",
                             hint="give an --address that passes DELETE to Ray's dashboard")
        if done.problem:
            say("warning", f"not all runs were deleted: {done.problem}")
        removed = frozenset(done.deleted)
    rows = grouped(((job.metadata.get("fleet") or "", job.metadata.get("verb") or ""), job) for job in old)
    return Pruned(dry_run=dry_run, nodes=[], runs=[
        PrunedRuns(fleet=name, verb=verb, found=len(runs), removed=sum(job.submission_id in removed for job in runs),
                   newest=moment_of_ms(runs[-1].start_time_ms)) for (name, verb), runs in sorted(rows.items())])


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
