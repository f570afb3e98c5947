"""`fleetctl evict` and `fleetctl restart`, and what `drain`, `replace` and `rollout` share with them.

Only these verbs take something away, and only from the replicas that they list in a question; apply uses none of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated, Literal

import typer

from fleetctl.apply.explicit import NOUNS, STATUS_HINT, ExplicitOrder, KeptVariant, Verb, run_explicit
from fleetctl.apply.outcome import INTERRUPTED, final_exit_code
from fleetctl.cli import flags
from fleetctl.cli.commands import command_app, epilog
from fleetctl.cli.console import say, show_report, write_result
from fleetctl.cli.flags import OutputFormat
from fleetctl.cli.process import invocation_on_one_cluster, now_text
from fleetctl.cli.replica_argument import ReplicaArguments, ReplicaId, named_replicas
from fleetctl.cli.verb import OnCluster, new_job_id, on_cluster, perform, starter
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.events import Event, ReplicaOutcome, RunSummary
from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Inventory, Node, Replica, dead_node_ids, is_live
from fleetctl.documents.names import command_line
from fleetctl.documents.quantity import count_of, first_few, format_bytes, grouped, some
from fleetctl.errors import FleetctlError, PolicyRefused, UsageError
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.placement.policies import policy_of
from fleetctl.planner.policy import protection_of
from fleetctl.planner.weights import with_startup_times
from fleetctl.render.replica_text import node_text, replica_name, status_word
from fleetctl.render.report.of_runs import outcomes_report, totals
from fleetctl.render.visible import visible
from fleetctl.workflow.cluster import absent, fleet_of
from fleetctl.workflow.invocation import Where

app = command_app()
DrainTime = Annotated[float, flags.option(
    "--drain", metavar="DURATION", parser=flags.duration,
    help="Before ending a replica, remove it from `fleetctl endpoints` and wait at most this long for its requests "
         "to end. [default: 0s]")]
LISTED = 20
LEVELS: dict[str, Literal["WARM", "COLD"]] = {"warm": "WARM", "cold": "COLD"}


@dataclass(frozen=True, slots=True)
class WarmRoom:
    """One node, in bytes: its budget for weights, the part `held` by WARM replicas, and the size of the new weights."""

    node: Node
    budget: int
    held: int
    more: int

    def __str__(self) -> str:
        return (f"{self.node.name}: {format_bytes(self.more)} of weights stay in memory; with those already WARM "
                f"{format_bytes(self.held + self.more)} of at most {format_bytes(self.budget)}")


@dataclass(frozen=True, slots=True)
class VerbRequest:
    """What was requested: the verb, the first words of its question, and its flags; the rest as in `ExplicitOrder`."""

    verb: Verb
    asks: str
    yes: bool
    dry_run: bool
    output_format: OutputFormat
    lock_timeout_s: float
    drain_s: float = 0.0
    keep: Mapping[str, int] = field(default_factory=dict)
    level: Literal["WARM", "COLD"] | None = None
    rooms: Sequence[WarmRoom] = ()
    keep_of_each: Sequence[KeptVariant] = ()


@app.command(epilog=epilog(
    "fleetctl evict openai-community/gpt2/2",
    "fleetctl evict openai-community/gpt2/1 openai-community/gpt2/2 --drain 30s",
    "fleetctl evict openai-community/gpt2 --dry-run   # all its replicas",
    "fleetctl evict openai-community/gpt2/1 --to warm # keep the weights",
    "fleetctl evict --all -f fleets/prod.yaml         # all of the fleet",
    "fleetctl evict --all --level hot -f fleets/prod.yaml   # WARM ones stay",
    exit_codes="0 gone, 1 error, or no such replica of ours, 3 some are not gone, 4 protected by the fleet's "
               "policy, 5 another run holds the lock, 64 usage"))
def evict(
    *,
    replicas: ReplicaArguments = None,
    replica_id: ReplicaId = None,
    every: Annotated[bool, typer.Option("--all", help="End all replicas of the fleet in -f.")] = False,
    files: flags.ClusterFiles = None,
    where: flags.Cluster,
    drain: DrainTime = 0,
    dry_run: flags.DryRun = False,
    yes: flags.Yes = False,
    to: Annotated[Literal["warm", "cold"] | None, typer.Option("--to", case_sensitive=False, help=(
        "Keep the weights: warm = in memory on the same nodes, as a WARM replica with the same id and without GPUs; "
        "cold = on the disks of the nodes."))] = None,
    level: Annotated[Literal["hot", "warm"] | None, typer.Option("--level", case_sensitive=False, help=(
        "End only the replicas at this level. [default: both]"))] = None,
    lock_timeout: flags.LockTimeout = 0,
    output_format: flags.Format = "table",
) -> int:
    """End the named replicas, and no others.

    Returns once their engines are gone and their cards are free. Requests in flight are cut off unless they end within
    --drain. The next apply starts again what the fleet file still wants. With -f, models that its policy protects are
    refused. With --to, a replica that cannot go to that level stays as it is.
    """
    if replicas and every:
        only = command_line("fleetctl evict", replicas[:1])
        raise UsageError("--all ends all replicas of a fleet, and takes no names",
                         hint=f"`{only}` ends that replica, or all of that model")
    if bool(replicas) == every or (every and replica_id is not None):
        raise UsageError("name the replicas to end", hint="write MODEL/ID or MODEL, or --all -f FLEET")
    if every and not files:
        raise UsageError("--all needs -f FLEET, and ends the replicas of that fleet only")
    with _on_one_cluster(where, files) as here:
        seen, fleet = here.read(), here.fleet
        if every and fleet:
            chosen = [replica for replica in seen.replicas
                      if replica.fleet == fleet.name and replica.replica_id is not None]
            if not chosen:
                raise absent(seen, f"no replica of fleet {fleet.name} runs", hint="`fleetctl status` lists what runs")
        else:
            chosen = named_replicas(seen, replicas or (), replica_id, fleet.name if fleet else None)
        chosen = _at_level(seen, chosen, level) if level else chosen
        refuse_protected(fleet, chosen)
        if to == "warm":
            for replica in (replica for replica in chosen if replica.level == "WARM"):
                say("note", f"{replica_name(replica.model, replica.replica_id)} is already WARM")
            chosen = [replica for replica in chosen if replica.level == "HOT"]
            if not chosen:
                return 0
        rooms = rooms_for(seen, chosen, fleet.policies if fleet else ()) if to == "warm" else []
        kept = LEVELS[to] if to else None
        wanted = VerbRequest("evict", f"Evict to {kept}" if kept else "End", yes, dry_run, output_format, lock_timeout,
                             drain, level=kept, rooms=rooms)
        return _carry_out(wanted, here, seen, chosen)


@app.command(epilog=epilog(
    "fleetctl restart openai-community/gpt2/2",
    "fleetctl restart openai-community/gpt2   # all its replicas",
    exit_codes="0 all are ready again, 1 error, or no such replica of ours, 3 some are not ready, 4 protected by the "
               "fleet's policy, 5 another restart runs, 64 usage"))
def restart(
    *,
    replicas: ReplicaArguments = None,
    replica_id: ReplicaId = None,
    files: flags.ClusterFiles = None,
    where: flags.Cluster,
    dry_run: flags.DryRun = False,
    yes: flags.Yes = False,
    lock_timeout: flags.LockTimeout = 0,
    output_format: flags.Format = "table",
) -> int:
    """Restart engines in place, one replica after another.

    Id, nodes and spec stay; `fleetctl replace` changes the spec. Each replica is ready before the next is restarted;
    the first that does not become ready ends the command. A restart does not count toward the limit of the model
    (`restart.max`). With -f, models that its policy protects are refused.
    """
    if not replicas:
        raise UsageError("name the replicas to restart", hint="write MODEL/ID or MODEL")
    with _on_one_cluster(where, files) as here:
        seen = here.read()
        named = named_replicas(seen, replicas, replica_id, here.fleet.name if here.fleet else None)
        chosen = [replica for replica in named if replica.level == "HOT"]
        if not chosen:
            raise FleetctlError("a WARM replica has no engine", hint="the next apply promotes it if it is wanted")
        refuse_protected(here.fleet, chosen)
        wanted = VerbRequest("restart", "Restart", yes, dry_run, output_format, lock_timeout)
        return _carry_out(wanted, here, seen, chosen)


def _at_level(seen: Inventory, named: Sequence[Replica], level: str) -> list[Replica]:
    """Return those at this level, and report how many are not; raises FleetctlError if none is."""
    chosen = [replica for replica in named if replica.level == level.upper()]
    if not chosen:
        names = first_few([replica_name(replica.model, replica.replica_id) for replica in named], LISTED)
        raise absent(seen, f"none of these is {level.upper()}: {', '.join(names)}",
                     hint="`fleetctl status` shows the level of each")
    if others := len(named) - len(chosen):
        say("note", f"{count_of(others, 'replica')} left alone: not {level.upper()}")
    return chosen


def budget_of(node: Node, policies: Sequence[NodePolicy]) -> int:
    """Return the bytes of weights that may be WARM on a node: the fleet file's value, else half of Ray's memory."""
    warm = policy_of(node, policies).warm
    return node.resources.total.memory // 2 if warm is None else warm


def rooms_for(seen: Inventory, chosen: Sequence[Replica], policies: Sequence[NodePolicy] = ()) -> list[WarmRoom]:
    """Return the nodes on which the weights of these replicas would stay; raises FleetctlError if they do not fit.

    Weights that an interrupted eviction has already loaded count once. Replicas without weights are left to the agent,
    which reports that they stay.
    """
    more: Counter[str] = Counter()
    for replica in chosen:
        folders = {(member.node_id, member.weights.artifact, member.weights.view): member.weights.bytes or 0
                   for member in replica.members if member.weights and member.node_id}
        for (node_id, *_), size in folders.items():
            more[node_id] += size
    if not more:
        raise FleetctlError("nothing can be WARM: no member that is ready has `weights` in the fleet file",
                            hint="docs/weights.md says how fleetctl fetches them")
    held: Counter[str | None] = Counter()
    again = {(replica.model, replica.replica_id) for replica in chosen}
    for replica in seen.replicas:
        if replica.level == "WARM" and (replica.model, replica.replica_id) not in again:
            for member in replica.members:
                held[member.node_id] += member.memory
    rooms = [WarmRoom(node, budget_of(node, policies), held[node.id], more[node.id])
             for node in seen.nodes if node.id in more]
    if full := [room for room in rooms if room.held + room.more > room.budget]:
        raise FleetctlError("; ".join(map(str, full)), hint="`fleetctl evict` a WARM replica to free memory")
    return rooms


def _on_one_cluster(where: Where, files: Sequence[str] | None) -> AbstractContextManager[OnCluster]:
    """Connect to the cluster of a verb that ends something. Raises UsageError if two clusters are named."""
    invocation = invocation_on_one_cluster(where.address)
    return on_cluster(invocation, where, fleet_of(invocation, files))


def refuse_protected(fleet: ResolvedFleet | None, chosen: Sequence[Replica]) -> None:
    """Raise PolicyRefused if the given fleet file protects one of the models."""
    for replica in chosen if fleet else ():
        if fleet and (protection := protection_of(fleet, replica.model)) is not None:
            raise PolicyRefused(f"{replica_name(replica.model, replica.replica_id)} stays: {protection} protects it",
                                hint="no flag lifts this; change spec.policy in a separate review")


def _carry_out(wanted: VerbRequest, here: OnCluster, seen: Inventory, chosen: Sequence[Replica]) -> int:
    """List the replicas, ask, act and show the result; returns the exit code."""
    def act() -> int:
        summaries = act_on(wanted, here, seen, chosen)
        outcomes = [row for summary in summaries for row in summary.outcomes]
        code = final_exit_code(outcomes, interrupted=any(summary.interrupted for summary in summaries))
        return show_steps(outcomes, code, wanted.verb, wanted.output_format, summaries[-1])

    return perform_on(chosen, wanted, seen, act,
                      [*map(str, wanted.rooms), *_afterwards(wanted, seen, chosen, here.fleet)])


def perform_on(
    chosen: Sequence[Replica], wanted: VerbRequest, seen: Inventory, act: Callable[[], int], notes: Iterable[str],
    foreseen: Callable[[], int] = lambda: 0,
) -> int:
    """List the replicas and notes about them, ask, and act; otherwise as `perform`."""
    names, dead = {node.id: node.name for node in seen.nodes}, dead_node_ids(seen)
    described = [(replica_name(replica.model, replica.replica_id),
                  ", ".join(filter(None, (f"fleet {visible(replica.fleet or '')}", visible(replica.variant or ""),
                                          status_word(replica, dead), f"on {node_text(replica, names)}"))))
                 for replica in chosen]
    listed = first_few([f"{name} ({text})" for name, text in described], LISTED)
    shown = [(wanted.asks.lower(), line) for line in listed if len(chosen) > 1 or wanted.dry_run or wanted.yes]
    what = f"{described[0][0]} ({described[0][1]})" if len(chosen) == 1 else f"these {len(chosen)} replicas"
    return perform(act, f"{wanted.asks} {what}?", yes=wanted.yes, dry_run=wanted.dry_run, foreseen=foreseen,
                   shown=[*shown, *(("note", note) for note in notes)])


def act_on(
    wanted: VerbRequest, here: OnCluster, seen: Inventory, chosen: Sequence[Replica],
    also: Callable[[Event], None] = lambda _: None,
) -> list[RunSummary]:
    """Carry out the verb for the replicas, and return a summary per fleet; `also` gets each event, too.

    An error is raised only if nothing was done before it; later it becomes the outcome of the remaining replicas. After
    an interrupt the remaining fleets are skipped.
    """
    def relay(event: Event) -> None:
        also(event)
        if event.type == "draining":
            say("note", event.message)

    summaries: list[RunSummary] = []
    for order in _orders(wanted, here, seen, chosen):
        try:
            summaries.append(run_explicit(here.source.client, order, new_job_id(wanted.verb), starter(), relay))
        except KeyboardInterrupt:
            say("note", f"the {NOUNS[wanted.verb]} may continue in the cluster; {STATUS_HINT}")
            raise
        except FleetctlError as error:
            if not summaries:
                raise
            rows = [ReplicaOutcome(model=replica.model, replica_id=replica.replica_id, outcome="failed",
                                   variant=replica.variant, code="NOT_DONE", nodes=order.nodes_of(replica),
                                   message=error.message)
                    for replica in order.replicas]
            summaries.append(summaries[-1].model_copy(update={"outcomes": rows, "message": error.message}))
        if summaries[-1].interrupted:
            if not summaries[-1].outcomes:
                say("note", summaries[-1].message)
            break
    return summaries


def ended_by(summaries: Sequence[RunSummary]) -> list[ReplicaOutcome]:
    """Return the outcomes of an eviction by `replace`, `rollout` or `drain`, without replicas that were already gone.

    They had to go, and another user or a crash was faster. Whoever names a replica to `evict` is told.
    """
    return [row for summary in summaries for row in summary.outcomes if row.code != "NOT_FOUND"]


def _orders(
    wanted: VerbRequest, here: OnCluster, seen: Inventory, chosen: Sequence[Replica]
) -> Iterator[ExplicitOrder]:
    """Yield an order per fleet, since each fleet has its own lock."""
    names = {node.id: node.name for node in seen.nodes}
    models = with_startup_times(here.fleet, seen).models if here.fleet else ()
    timeouts = {model.key: model.startup_timeout_s for model in models}
    warm = {room.node.id: {"name": room.node.name, "bytes": room.budget} for room in wanted.rooms}
    for name, replicas in grouped((replica.fleet or "", replica) for replica in chosen).items():
        yield ExplicitOrder(wanted.verb, name, here.source.namespace, replicas, names, timeouts, wanted.drain_s,
                            wanted.lock_timeout_s, wanted.keep, wanted.level, warm, wanted.keep_of_each)


def show_steps(
    outcomes: Sequence[ReplicaOutcome], code: int, verb: str, output_format: OutputFormat,
    last: RunSummary | None = None,
) -> int:
    """Show the outcomes of a verb as one result; returns the exit code. `last` = the summary, for a verb of one run."""
    interrupted = code == INTERRUPTED
    if output_format == "json":
        message = totals(outcomes, interrupted=interrupted, verb=verb)
        summary = last or RunSummary(seq=0, time=now_text(), message=message, exit_code=code, interrupted=interrupted)
        write_result(indented_json(summary.model_copy(update={"outcomes": list(outcomes), "exit_code": code})))
    else:
        show_report(outcomes_report(outcomes, interrupted=interrupted, verb=verb))
    return code


def _afterwards(
    wanted: VerbRequest, seen: Inventory, chosen: Sequence[Replica], fleet: ResolvedFleet | None
) -> Iterator[str]:
    """Yield what the next apply of the file will do about it, a line per model."""
    if wanted.verb != "evict" or fleet is None:
        return
    dead, ended = dead_node_ids(seen), {(replica.model, replica.replica_id) for replica in chosen}
    left = grouped((replica.model, replica) for replica in seen.replicas
                   if is_live(replica, dead) and (replica.model, replica.replica_id) not in ended)
    for model in fleet.models:
        if any(replica.model == model.key for replica in chosen):
            stay = left.get(model.key, [])
            of_each = Counter(model.variant_of(replica.spec_hash, replica.variant) for replica in stay)
            lacking = {one.variant: one.least - of_each[place] for place, one in enumerate(model.variants)
                       if one.least > of_each[place]}
            again = max(model.replicas - len(stay), sum(lacking.values()))
            minimum = f", {some([f'{count} as {name}' for name, count in lacking.items()])} for its minimum"
            yield (f"{model.key}: the fleet file wants {model.asked_for}, {len(stay)} stay"
                   + (f"; the next apply starts {count_of(again, 'replica')}" if again > 0 else "")
                   + (minimum if lacking else "")
                   + (", and promotes a WARM one if possible" if again > 0 and wanted.level == "WARM" else ""))
