"""Shared by `evict` and `restart`: the question that lists every replica, the run, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from fleetctl.apply.explicit import NOUNS, STATUS_HINT, Order, Verb, run_explicit
from fleetctl.apply.outcome import INTERRUPTED, final_exit_code
from fleetctl.cli import flags
from fleetctl.cli.apply.output import NOTHING_DONE
from fleetctl.cli.console import confirm, say, show_report, write_result
from fleetctl.cli.flags import OutputFormat
from fleetctl.cli.identity import new_job_id, starter
from fleetctl.cli.process import now_text
from fleetctl.documents.canonical import indented_json
from fleetctl.documents.events import Event, ReplicaOutcome, RunSummary
from fleetctl.documents.inventory import Inventory, Replica, dead_node_ids, is_live
from fleetctl.documents.quantity import count_of, first_few, grouped
from fleetctl.errors import FleetctlError, PolicyRefused
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.dashboard import Live
from fleetctl.planner.policy import policy_at, protecting
from fleetctl.render.place_text import node_text, replica_name, status_word
from fleetctl.render.report.of_runs import outcomes_report, totals
from fleetctl.render.visible import visible
from fleetctl.workflow.warm_budget import WarmRoom

DrainTime = Annotated[float, flags.option(
    "--drain", metavar="DURATION", parser=flags.duration,
    help="Before ending a replica, remove it from `fleetctl endpoints` and wait this long for its requests to end. "
         "[default: 0s]")]
LISTED = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was requested: the verb, the first words of its question, and its flags; the other fields as in `Order`."""

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


def refuse_protected(fleet: ResolvedFleet | None, chosen: Sequence[Replica]) -> None:
    """Raise PolicyRefused if the given fleet file protects one of the models."""
    for replica in chosen if fleet else ():
        if fleet and (pattern := protecting(fleet.policy.protected_models, replica.model)) is not None:
            raise PolicyRefused(f"{replica_name(replica.model, replica.replica_id)} stays: "
                                f"{policy_at(fleet, 'protectedModels', pattern)} protects it",
                                hint="no flag lifts this; change spec.policy in a separate review")


def carry_out(
    wanted: Wanted, source: Live, seen: Inventory, chosen: Sequence[Replica], fleet: ResolvedFleet | None
) -> int:
    """List the replicas, ask, act and show the result; returns the exit code."""
    refused = agreed_to(wanted, seen, chosen, [*map(str, wanted.rooms), *_afterwards(wanted, seen, chosen, fleet)])
    if refused is not None:
        return refused
    summaries = act_on(wanted, source, seen, chosen, fleet)
    outcomes = [row for summary in summaries for row in summary.outcomes]
    code = final_exit_code(outcomes, interrupted=any(summary.interrupted for summary in summaries))
    return show_steps(outcomes, code, wanted.verb, wanted.output_format, summaries[-1])


def agreed_to(wanted: Wanted, seen: Inventory, chosen: Sequence[Replica], notes: Iterable[str]) -> int | None:
    """List the replicas and ask; returns None after a yes, else the exit code."""
    names, dead = {node.id: node.name for node in seen.nodes}, dead_node_ids(seen)
    described = [(replica_name(one.model, one.replica_id),
                  f"fleet {visible(one.fleet or '')}, {status_word(one, dead)}, on {node_text(one, names)}")
                 for one in chosen]
    if len(chosen) > 1 or wanted.dry_run:
        say(wanted.asks.lower(), *first_few([f"{name} ({text})" for name, text in described], LISTED))
    say("note", *notes)
    if wanted.dry_run:
        say("note", NOTHING_DONE)
        return 0
    what = f"{described[0][0]} ({described[0][1]})" if len(chosen) == 1 else f"these {len(chosen)} replicas"
    return None if confirm(f"{wanted.asks} {what}?", yes=wanted.yes, otherwise="nothing was done") else 1


def act_on(
    wanted: Wanted, source: Live, seen: Inventory, chosen: Sequence[Replica], fleet: ResolvedFleet | None
) -> list[RunSummary]:
    """Carry out the verb for the replicas, and return a summary per fleet.

    An error is raised only if nothing was done before it; later it becomes the outcome of the remaining replicas. After
    an interrupt the remaining fleets are skipped.
    """
    def relay(event: Event) -> None:
        if event.type == "draining":
            say("note", event.message)

    summaries: list[RunSummary] = []
    for order in _orders(wanted, source, seen, chosen, fleet):
        try:
            summaries.append(run_explicit(source.client, order, new_job_id(wanted.verb), starter(), relay))
        except KeyboardInterrupt:
            say("note", f"the {NOUNS[wanted.verb]} may continue in the cluster; {STATUS_HINT}")
            raise
        except FleetctlError as error:
            if not summaries:
                raise
            rows = [ReplicaOutcome(model=one.model, replica_id=one.replica_id, outcome="failed", code="NOT_DONE",
                                   nodes=order.nodes_of(one), message=error.message) for one in order.replicas]
            summaries.append(summaries[-1].model_copy(update={"outcomes": rows, "message": error.message}))
        if summaries[-1].interrupted:
            if not summaries[-1].outcomes:
                say("note", summaries[-1].message)
            break
    return summaries


def _orders(
    wanted: Wanted, source: Live, seen: Inventory, chosen: Sequence[Replica], fleet: ResolvedFleet | None
) -> Iterator[Order]:
    """Yield an order per fleet, since each fleet has its own lock."""
    names = {node.id: node.name for node in seen.nodes}
    timeouts = {model.key: model.startup_timeout_s for model in fleet.models} if fleet else {}
    warm = {room.node.id: {"name": room.node.name, "bytes": room.budget} for room in wanted.rooms}
    for name, replicas in grouped((one.fleet or "", one) for one in chosen).items():
        yield Order(wanted.verb, name, source.namespace, replicas, names, timeouts, wanted.drain_s,
                    wanted.lock_timeout_s, wanted.keep, wanted.level, warm)


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
    wanted: Wanted, seen: Inventory, chosen: Sequence[Replica], fleet: ResolvedFleet | None
) -> Iterator[str]:
    """Yield what the next apply of the file will do about it, a line per model."""
    if wanted.verb != "evict" or fleet is None:
        return
    dead, ended = dead_node_ids(seen), {(one.model, one.replica_id) for one in chosen}
    left = Counter(one.model for one in seen.replicas
                   if is_live(one, dead) and (one.model, one.replica_id) not in ended)
    for model in fleet.models:
        if any(one.model == model.key for one in chosen):
            again = model.replicas - left[model.key]
            yield (f"{model.key}: the fleet file wants {model.replicas}, {left[model.key]} stay"
                   + (f"; the next apply starts {count_of(again, 'replica')}" if again > 0 else "")
                   + (", and promotes a WARM one if possible" if again > 0 and wanted.level == "WARM" else ""))
