"""`fleetctl drain NODE`: cordon it, start replacements elsewhere, then list or end the replicas there."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated

import typer

from fleetctl.apply.explicit import KeptVariant
from fleetctl.apply.outcome import PARTIAL, final_exit_code
from fleetctl.apply.prepare import ApplyOptions, ApplyTask
from fleetctl.cli import explicit, flags
from fleetctl.cli.apply_run import CollectedOutput, carry_out, show_proposal
from fleetctl.cli.commands import command_app
from fleetctl.cli.console import say
from fleetctl.cli.explicit import DrainTime
from fleetctl.cli.nodes import CordonFor, CordonReason, NodeArgument, lasting_note, node_of, write
from fleetctl.cli.process import invocation_on_one_cluster
from fleetctl.cli.verb import OnCluster, on_cluster, one_command, perform, starter
from fleetctl.documents.events import ReplicaOutcome
from fleetctl.documents.inventory import (
    STARTING_STATES,
    Cordon,
    Inventory,
    Node,
    Replica,
    ReplicaMember,
    dead_node_ids,
    is_live,
    serves,
)
from fleetctl.documents.names import command_line
from fleetctl.documents.plan import Action, Plan
from fleetctl.documents.quantity import count_of
from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel, in_variants
from fleetctl.inventory.records import CORDON
from fleetctl.planner.live import variant_name, variant_of
from fleetctl.planner.options import PlanOptions, require_complete
from fleetctl.render.replica_text import name_of
from fleetctl.workflow.proposal import proposed_by_fleet
from fleetctl.workflow.replace import kept_of_each, other_variants, serving_of

app = command_app(
    "fleetctl drain node-a -f fleets/prod.yaml   # lists what may be evicted",
    "fleetctl drain node-a --evict --drain 30s --for 2h -f fleets/prod.yaml",
    "fleetctl drain node-a --dry-run -f fleets/prod.yaml",
    exit_codes="0 all may go (with --evict: are gone), 1 error or no such node, 3 some must stay, 4 refused "
               "by policy, 5 another run holds the lock, 7 stopped waiting, 64 usage, 130 interrupted")


@dataclass(frozen=True, slots=True)
class Draining:
    """A node to drain; `before` is the inventory before the drain began."""

    loaded: LoadedFleet
    before: Inventory
    node: Node

    @property
    def fleet(self) -> ResolvedFleet:
        """The fleet whose replicas leave."""
        return self.loaded.sound()

    def on_node(self) -> list[Replica]:
        """Return all live replicas with a member on the node, of any fleet."""
        dead = dead_node_ids(self.before)
        return [replica for replica in self.before.replicas
                if is_live(replica, dead) and any(member.node_id == self.node.id for member in replica.members)]

    def warm(self) -> list[Replica]:
        """Return the WARM replicas on the node, of any fleet: no drain moves them."""
        return [replica for replica in self.before.replicas
                if replica.level == "WARM" and any(member.node_id == self.node.id for member in replica.members)]

    def staying(self) -> list[Replica]:
        """Return the replicas on the node that a drain of this fleet leaves alone."""
        leaving = self.leaving()
        return [replica for replica in self.on_node() if replica not in leaving]

    def leaving(self) -> list[Replica]:
        """Return the replicas on the node whose model is in the fleet file: they can be replaced."""
        keys = {model.key for model in self.fleet.models}
        return [replica for replica in self.on_node() if _is_of(self.fleet, replica) and replica.model in keys]

    def replacements(self) -> dict[str, list[ResolvedModel]]:
        """Return each model with a target that keeps min(target, live) replicas beside the leaving ones, by key.

        Of a model with variants these are the ways to plan it, the first of which nothing is blocked: with new replicas
        of the variants that leave, then of any. Leaving ones do not count for the `min` and `max` of theirs.
        """
        found = dict[str, list[ResolvedModel]]()
        for model in self.fleet.models:
            if leaving := [replica for replica in self.leaving() if replica.model == model.key]:
                live = [replica for replica in _live(self.fleet, self.before) if replica.model == model.key]
                target = max(len(live), min(model.replicas, len(live)) + len(leaving))
                found[model.key] = _in_the_place_of(
                    model.with_changes(surge=0, replicas=target), live, leaving, target - len(live))
        return found

    def with_replacements(self, models: Iterable[ResolvedModel]) -> LoadedFleet:
        """Return the fleet with these models, for a plan of what replaces their replicas."""
        return replace(self.loaded, fleet=self.fleet.only_creating({model.key: model for model in models}))

    def other_variants(self, actions: Sequence[Action], codes: Mapping[str, str]) -> Iterator[str]:
        """Yield which leaving replica is replaced by one of another variant, in words.

        `codes` = why the plan for replicas of the same variants was blocked, by model.
        """
        for model in self.fleet.models:
            new = {one.replica_id: one for one in actions if one.model == model.key}
            old = [replica for replica in self.leaving() if replica.model == model.key]
            for action in list(new.values()):
                if same := next((one for one in old if variant_name(model, one) == action.variant), None):
                    old.remove(same)
                    del new[action.replica_id]
            yield from other_variants(model, zip(old, new.values(), strict=False), codes.get(model.key, ""))

    def cordoned(self, inventory: Inventory, cordon: Cordon) -> Inventory:
        """Return the inventory with the node cordoned."""
        nodes = [node.model_copy(update={"cordon": cordon}) if node.id == self.node.id else node
                 for node in inventory.nodes]
        return inventory.model_copy(update={"nodes": nodes})

    def may_end(self, now: Inventory) -> tuple[list[Replica], list[Replica]]:
        """Return which of the leaving replicas may end `now`, and which must stay.

        Of each model min(target, before) stay live, and min(target, ready before) stay ready; of each variant
        min(its `min`, ready before).
        """
        dead = dead_node_ids(now)
        agreed = {(replica.model, replica.replica_id, replica.actor_id) for replica in self.leaving()}
        remaining = [replica for replica in now.replicas
                     if (replica.model, replica.replica_id, replica.actor_id) in agreed and _is_of(self.fleet, replica)
                     and is_live(replica, dead)]
        spare, spare_ready = self._spare(now, ready=False), self._spare(now, ready=True)
        models = {model.key: model for model in self.fleet.models}
        of_each = {key: serving_of(model, self._ready(now, key)).of_each for key, model in models.items()
                   if model.variants}
        spare_of_each = Counter[tuple[str, int | None]](
            {(key, number): count - least[number] for key, least in self.least_of_each().items()
             for number, count in enumerate(of_each[key])})
        end, stay = list[Replica](), list[Replica]()
        for replica in sorted(remaining, key=serves):
            own = replica.model, variant_of(models[replica.model], replica)
            is_kept = serves(replica) and own in spare_of_each and spare_of_each[own] <= 0
            counts = (spare, spare_ready) if serves(replica) else (spare,)
            if all(count[replica.model] > 0 for count in counts) and not is_kept:
                end.append(replica)
                for count in counts:
                    count[replica.model] -= 1
                if own in spare_of_each:  # a model without variants has no minimum of one
                    spare_of_each[own] -= serves(replica)
            else:
                stay.append(replica)
        return end, stay

    def foreseen(self, actions: Iterable[Action]) -> tuple[list[Replica], list[Replica]]:
        """Return what `may_end` will once all that the actions create, and all that starts elsewhere, is ready."""
        leaving = self.leaving()
        then = [replica.model_copy(update={"state": "ALIVE"})
                if replica.state in STARTING_STATES and replica not in leaving else replica
                for replica in self.before.replicas]
        then += [Replica(model=action.model, replica_id=action.replica_id, fleet=self.fleet.name,
                         spec_hash=action.spec_hash, variant=action.variant,
                         members=[ReplicaMember(node_id=member.node_id) for member in action.members])
                 for action in actions]
        return self.may_end(self.before.model_copy(update={"replicas": then}))

    def _spare(self, now: Inventory, *, ready: bool) -> Counter[str]:
        """Return the number of replicas of each model beyond those that must stay."""
        spare = Counter(replica.model for replica in _live(self.fleet, now, ready=ready))
        spare.subtract(self.least(ready=ready))
        return spare

    def least(self, *, ready: bool = True) -> dict[str, int]:
        """Return the number of replicas of each model that must stay: min(target, before)."""
        before = Counter(replica.model for replica in _live(self.fleet, self.before, ready=ready))
        return {model.key: min(model.replicas, before[model.key]) for model in self.fleet.models}

    def least_of_each(self) -> dict[str, list[int]]:
        """Return how many of each variant must stay ready: min(its `min`, before), by model; none without variants."""
        return {model.key: [min(one.least, count) for one, count in zip(
            model.variants, serving_of(model, self._ready(self.before, model.key)).of_each, strict=True)]
            for model in self.fleet.models if model.variants}

    def kept_of_each(self, now: Inventory) -> list[KeptVariant]:
        """Return the same for the agent, with the replicas that there are `now`."""
        models, least = {model.key: model for model in self.fleet.models}, self.least_of_each()
        return [kept for key, counts in least.items()
                for kept in kept_of_each(models[key], self._ready(now, key), counts)]

    def _ready(self, seen: Inventory, key: str) -> list[Replica]:
        return [replica for replica in _live(self.fleet, seen, ready=True) if replica.model == key]


@app.command()
def drain(
    *,
    node: NodeArgument,
    files: flags.FlaggedFiles,
    evict: Annotated[bool, typer.Option(
        "--evict", help="End the replicas there once their replacements are ready.")] = False,
    drain_time: DrainTime = 0,
    lasting: CordonFor = None,
    reason: CordonReason = "",
    start: flags.Starting,
    output_format: flags.Format = "table",
) -> int:
    """Replace the replicas of a node elsewhere, then list or end them.

    The node is cordoned first. Each model keeps as many ready replicas as before, or as the file wants. A replica
    without a ready replacement stays and is listed. If interrupted, run the same command again to continue.
    """
    invocation = invocation_on_one_cluster(start.where.address)
    loaded = inspect_fleet(files, stdin=invocation.stdin)
    with on_cluster(invocation, start.where, loaded.sound()) as here:
        before = here.read()
        draining = Draining(loaded, before, node_of(before, node))
        require_complete(before)
        held = draining.node.cordon
        keeps = held is not None and not reason and lasting is None
        cordon = None if keeps else lasting_note(reason or (held.reason if held else ""), lasting, before.observed_at)
        explicit.refuse_protected(draining.fleet if evict else None, draining.leaving())
        for replica in draining.staying():
            whose = (f"of fleet {replica.fleet}" if replica.fleet != draining.fleet.name
                     else "of no model in the fleet file")
            say("stays", f"{name_of(replica)}: {whose if replica.fleet else 'not started by a fleet'}")
        for replica in draining.warm():
            say("stays", f"{name_of(replica)}: it is WARM and ends with the node; `fleetctl evict` ends it earlier")
        with one_command("drain"):
            return _Drain(here, draining, files, evict, drain_time, cordon, start, output_format).run()


@dataclass(frozen=True, slots=True)
class _Drain:
    """One drain. `evict` = end what is no longer needed, within `drain_s`; `cordon` = the note to write, None = keep
    the cordon that is in force.
    """

    here: OnCluster
    draining: Draining
    files: Sequence[str]
    evict: bool
    drain_s: float
    cordon: dict[str, str] | None
    start: flags.StartFlags
    output_format: flags.OutputFormat

    def run(self) -> int:
        """Plan the replacements, show the steps, ask once, and carry them out; returns the exit code."""
        node, start = self.draining.node, self.start
        models = tuple(sorted({replica.model for replica in self.draining.leaving()}))
        if not models:
            say("note", f"no replica of a model in the fleet file runs on {node.name}")
            return self._perform(self._only_cordon, None)
        options = PlanOptions(models, force=start.force, files=tuple(self.files), ignore_cooldown=start.ignore_cooldown)
        new = Cordon.model_validate({**(self.cordon or {}), "by": starter().name})
        cordon = new if self.cordon is not None else node.cordon or new
        say("note", f"the plan wants all running replicas, and a replacement for each that leaves {node.name}")
        ways, codes = self.draining.replacements(), dict[str, str]()
        while True:
            loaded = self.draining.with_replacements(found[0] for found in ways.values())
            with proposed_by_fleet(self.here.invocation, loaded, options, start.where,
                                   lambda seen: self.draining.cordoned(seen, cordon)) as proposal:
                plan = proposal.task.plan
                if other := {row.model: row.code for row in plan.blocked if len(ways.get(row.model, ())) > 1}:
                    codes |= other
                    ways |= {key: ways[key][1:] for key in other}
                    continue
                show_proposal(self.here.invocation, proposal, self.output_format, force=start.force, yes=True)
                return self._perform(lambda: self._replace(proposal.task), plan, codes)

    def _perform(
        self, act: Callable[[], int], plan: Plan | None, codes: Mapping[str, str] = MappingProxyType({})
    ) -> int:
        """List what leaves the node and what has to stay, ask, and act.

        `plan` = that of the replacements; None = none are needed. `codes` as in `Draining.other_variants`.
        """
        end, stay = self.draining.foreseen(plan.all_starts if plan else ())
        no_room = {row.model: f"there is no room for its replacement ({row.code}), and "
                   for row in (plan.blocked if plan else ())}
        shown = [*(("note", line) for line in self.draining.other_variants(plan.all_starts if plan else (), codes)),
                 *(("end" if self.evict else "leaves", name_of(replica)) for replica in end),
                 *(("stays", f"{name_of(replica)}: {no_room.get(replica.model, '')}{_needed(replica)}")
                   for replica in stay)]
        starts = count_of(len(plan.all_starts), "replica") if plan and plan.all_starts else "nothing"
        first = f"cordon it, start {starts} elsewhere" if plan else "cordon it"
        then = f", then end {count_of(len(end), 'replica')} there" if self.evict and end else ""
        return perform(act, f"Drain {self.draining.node.name}: {first}{then}?", yes=self.start.yes, shown=shown,
                       dry_run=self.start.dry_run, foreseen=lambda: PARTIAL if stay else 0)

    def _only_cordon(self) -> int:
        write(self.here, CORDON, self.draining.node, self.cordon)
        return 0 if self.output_format == "table" else explicit.show_steps((), 0, "drain", self.output_format)

    def _replace(self, task: ApplyTask) -> int:
        """Cordon the node, start the replacements, and end or list what is no longer needed."""
        write(self.here, CORDON, self.draining.node, self.cordon)
        output = CollectedOutput(task.plan)
        code = carry_out(task, ApplyOptions(lock_timeout_s=self.start.lock_timeout), output, self.start.wait_timeout)
        rows = output.outcomes
        if code in (0, PARTIAL):
            ended, code = self._let_go()
            rows = [*rows, *ended]
        return explicit.show_steps(rows, code, "drain", self.output_format)

    def _let_go(self) -> tuple[list[ReplicaOutcome], int]:
        """End or list the replicas that are no longer needed; returns their outcomes and the exit code."""
        now = self.here.read(whole=True)
        end, stay = self.draining.may_end(now)
        rows = [_left_alone(replica, "NEEDED", _needed(replica)) for replica in stay]
        code = PARTIAL if stay else 0
        if end and self.evict:
            ending = explicit.VerbRequest("evict", "End", True, False, self.output_format, self.start.lock_timeout,
                                          self.drain_s, self.draining.least(),
                                          keep_of_each=self.draining.kept_of_each(now))
            summaries = explicit.act_on(ending, self.here, now, end)
            rows = [*explicit.ended_by(summaries), *rows]
            return rows, final_exit_code(rows, interrupted=any(summary.interrupted for summary in summaries))
        if end:
            files = shlex.join(word for file in self.files for word in ("-f", file))
            say("next", "to end them: " + command_line(
                "fleetctl evict", [f"{replica.model}/{replica.replica_id}" for replica in end], files))
        return [*(_left_alone(replica, "MAY_GO", "it is no longer needed here") for replica in end), *rows], code


def _needed(replica: Replica) -> str:
    return f"without it fewer replicas of {replica.model} would be ready than before"


def _left_alone(replica: Replica, code: str, why: str) -> ReplicaOutcome:
    return ReplicaOutcome(model=replica.model, replica_id=replica.replica_id, outcome="skipped", code=code, message=why,
                          variant=replica.variant)


def _is_of(fleet: ResolvedFleet, replica: Replica) -> bool:
    return replica.fleet == fleet.name and replica.replica_id is not None


def _in_the_place_of(
    model: ResolvedModel, live: Sequence[Replica], leaving: Sequence[Replica], missing: int
) -> list[ResolvedModel]:
    """Return the model in the ways to plan what takes the place of `leaving` replicas, `missing` by its target."""
    if not model.variants:
        return [model]
    counts, gone = (Counter(variant_of(model, one) for one in which) for which in (live, leaving))
    any_with_room = in_variants([replace(
        one, least=min(one.least, counts[number]) + gone[number],
        most=None if one.most is None else one.most + gone[number]) for number, one in enumerate(model.variants)],
        model.source)
    room = [gone[number] if one.most is None else max(0, min(gone[number], one.most - counts[number]))
            for number, one in enumerate(any_with_room.variants)]
    bound = [max(0, one.least - counts[number]) for number, one in enumerate(any_with_room.variants)]
    if sum(bound) >= missing:  # one of another variant would let none of them go
        return [any_with_room.with_changes(replicas=len(live))]
    if sum(room) < missing:
        return [any_with_room]
    alike = in_variants([replace(one, most=counts[number] + room[number])
                         for number, one in enumerate(any_with_room.variants)], model.source)
    return [alike, any_with_room]


def _live(fleet: ResolvedFleet, seen: Inventory, *, ready: bool = False) -> Iterator[Replica]:
    """Yield each live replica of the fleet, or only each ready one."""
    dead = dead_node_ids(seen)
    yield from (replica for replica in seen.replicas
                if _is_of(fleet, replica) and is_live(replica, dead) and (serves(replica) or not ready))
