"""Sorts an inventory's replicas for one fleet: live, starting, lost, unmanaged. Decides which ids new replicas get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count as counting
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING

from fleetctl.documents.base import clock_text
from fleetctl.documents.inventory import (
    LIVE_STATES,
    STARTING_STATES,
    Inventory,
    Pause,
    Replica,
    ReplicaMember,
    dead_node_ids,
    is_lost,
)
from fleetctl.documents.names import command_line
from fleetctl.documents.quantity import grouped, plural, some
from fleetctl.fleetfile.resolved import ResolvedModel

if TYPE_CHECKING:
    from fleetctl.documents.plan import Lost, Unmanaged

CLAIMED, NOT_TWICE = "CLAIMED_BY_FLEET", "a model that runs under another fleet gets no replicas"
PAUSED, NONE_WHILE_PAUSED = "PAUSED", "a paused model gets no replicas"


@dataclass(slots=True)
class ModelState:
    """The replicas of one model of our fleet, at `observed_at`.

    `taken_ids` includes ids used by other fleets; `hot_ids` = the ids in it with a HOT replica, ours or not.
    """

    live: list[Replica] = field(default_factory=list)
    lost: list[Replica] = field(default_factory=list)
    not_hot: list[Replica] = field(default_factory=list)
    """Our replicas on other levels, lost or not: they do not count, but their ids are in use."""
    claimed_by: set[str] = field(default_factory=set)
    taken_ids: set[int] = field(default_factory=set)
    hot_ids: set[int] = field(default_factory=set)
    observed_at: str = ""
    pause: Pause | None = None

    @property
    def starting(self) -> int:
        """Number of live replicas that are not ready, restarting ones included."""
        return sum(replica.state in STARTING_STATES for replica in self.live)

    def outdated(self, model: ResolvedModel) -> int:
        """Return how many live replicas were started with a different spec than the file's."""
        return sum(is_outdated(replica, model) for replica in self.live)

    def outdated_names(self, model: ResolvedModel, *, but: Collection[int] = ()) -> str:
        """Return the names of the first few of them; `but` = without those of these variants, by their places."""
        return some([f"{model.key}/{replica.replica_id}" for replica in self.live
                     if is_outdated(replica, model) and not (but and variant_of(model, replica) in but)])

    def to_create(self, model: ResolvedModel) -> int:
        """Return the number of missing replicas, for the target and the minimum of each variant.

        A replica with an unknown spec counts as current.
        """
        below = self.below_target(model)
        return max(below, sum(self.below_minimum(model))) if model.variants else below

    def floor(self, model: ResolvedModel) -> int:
        """Return how many live replicas are wanted: the target, or those that minimums ask for if these are more.

        Live ones beyond that are surplus. `ResolvedModel.asked_for` also has those that minimums still lack.
        """
        return max(model.replicas, self.kept_by_minimum(model)) if model.variants else model.replicas

    def below_target(self, model: ResolvedModel) -> int:
        """Return the number of replicas that the target still asks for, of whichever variant.

        In an update, outdated ones do not count, up to `model.surge` beyond the target. Ending one outdated replica
        after each such apply never leaves fewer live replicas than wanted.
        """
        floor, live = self.floor(model), len(self.live)
        if not model.surge:
            return max(0, floor - live)
        return max(0, min(floor - (live - self.outdated(model)), floor + model.surge - live))

    def below_minimum(self, model: ResolvedModel) -> list[int]:
        """Return how many replicas each variant lacks to its own minimum, preferred first."""
        return [max(0, one.least - have) for one, have in zip(model.variants, self.live_of_each(model), strict=True)]

    def kept_by_minimum(self, model: ResolvedModel) -> int:
        """Return how many live replicas the minimums of variants ask for."""
        return sum(min(one.least, have) for one, have in zip(model.variants, self.live_of_each(model), strict=True))

    def live_of_each(self, model: ResolvedModel) -> list[int]:
        """Return how many live replicas each variant has, outdated ones included; none without variants.

        Replicas of a variant that the file no longer has count toward none.
        """
        counts = Counter(variant_of(model, replica) for replica in self.live)
        return [counts[place] for place in range(len(model.variants))]

    def outdated_of_each(self, model: ResolvedModel) -> list[int]:
        """Return how many outdated replicas each variant has, preferred first."""
        counts = Counter(variant_of(model, replica) for replica in self.live if is_outdated(replica, model))
        return [counts[place] for place in range(len(model.variants))]

    def max_live(self, model: ResolvedModel) -> int:
        """Return how many replicas may be live at a time: the target, plus up to `model.surge` during an update.

        Or more, if variants are below their own minimum.
        """
        most = self.floor(model) + (min(model.surge, self.outdated(model)) if model.surge else 0)
        return max(most, len(self.live) + sum(self.below_minimum(model))) if model.variants else most

    @property
    def claim(self) -> str:
        """Return why the model gets no replicas while other fleets run it; empty if none does."""
        fleets = sorted(self.claimed_by)
        return (f"this key is live under {plural(len(fleets), 'fleet')} {', '.join(fleets)}; remove it there, or take "
                f"it over with --adopt-from {fleets[0]}") if fleets else ""

    @property
    def barred(self) -> tuple[str, str] | None:
        """The code and the reason with which all new replicas of the model are blocked; None = it may have some."""
        return (CLAIMED, self.claim) if self.claimed_by else (PAUSED, self.paused) if self.pause else None

    @property
    def paused(self) -> str:
        """Return why the model gets no replicas while it is paused; empty if it is not."""
        return paused_text(self.pause, self.observed_at) if self.pause else ""

    @property
    def highest_id(self) -> int:
        """Highest id of our replicas that are not DEAD, including lost ones and every level; -1 if there is none."""
        return max(self.own_ids, default=-1)

    @property
    def own_ids(self) -> set[int]:
        """Ids of our replicas that are not DEAD."""
        return {replica.replica_id for replica in (*self.live, *self.lost, *self.not_hot)
                if replica.replica_id is not None}

    @property
    def not_hot_ids(self) -> set[int]:
        """Ids of our replicas on other levels that no HOT replica uses."""
        return {replica.replica_id for replica in self.not_hot if replica.replica_id is not None} - self.hot_ids

    def new_ids(self, count: int) -> list[int]:
        """Return ids for new replicas: counting up from the highest, without ids that others use."""
        free = (number for number in counting(self.highest_id + 1) if number not in self.taken_ids)
        return list(islice(free, count))


@dataclass(slots=True)
class LiveState:
    """All replicas of an inventory, sorted for one fleet."""

    models: dict[str, ModelState]
    holding: dict[str, list[ReplicaMember]]
    """By node id: the members of all live replicas, foreign ones included, in a fixed order."""
    unmanaged: list[Unmanaged]
    lost: list[Lost]
    running: list[tuple[Replica, bool]]
    """All live replicas, including foreign ones and WARM ones with memory, in a fixed order; whether each is ours."""

    def live_of(self, key: str) -> Sequence[Replica]:
        """Return the live replicas of a model."""
        return self.models[key].live if key in self.models else ()


def sort_out(inventory: Inventory, fleet: str, keys: Collection[str], adopt_from: str | None = None) -> LiveState:
    """Sort the replicas of `inventory` for `fleet`, whose file has the models `keys`.

    Live = a live actor state, and not lost. `adopt_from` = a fleet whose replicas of our models count as ours.
    """
    dead = dead_node_ids(inventory)
    names = {node.id: node.name for node in inventory.nodes}
    state = LiveState({key: ModelState(observed_at=inventory.observed_at) for key in keys}, {}, [], [], [])
    for key in keys if inventory.pauses else ():
        state.models[key].pause = pause_of(inventory, fleet, key)
    for replica in in_fixed_order(inventory.replicas):
        if replica.state not in LIVE_STATES:
            continue
        lost = is_lost(replica, dead)
        marked = replica.fleet == fleet or (replica.fleet is not None and replica.fleet == adopt_from
                                            and replica.model in keys)
        ours = marked and replica.replica_id is not None  # without an id no verb could name it
        _add(state, replica, names, marked=marked, ours=ours, lost=lost)
        if not lost and (replica.level == "HOT" or any(member.memory for member in replica.members)):
            state.running.append((replica, ours))
            for member in replica.members:
                if member.node_id is not None:
                    state.holding.setdefault(member.node_id, []).append(member)
    return state


def pause_of(inventory: Inventory, fleet: str, model: str) -> Pause | None:
    """Return the pause of a whole fleet, else of this model in it; None = it is not paused."""
    pauses = [pause for pause in inventory.pauses if pause.fleet == fleet and pause.model in (None, model)]
    return min(pauses, key=lambda pause: pause.model is not None, default=None)


def paused_text(pause: Pause, observed_at: str) -> str:
    """Say what is paused, since when, by whom, until when and why: `paused since 14:18 UTC by ana: new driver`."""
    what = "paused" if pause.model is not None else f"fleet {pause.fleet} is paused"
    until = f", until {clock_text(pause.until, observed_at)}" if pause.until else ""
    return (f"{what} since {clock_text(pause.since, observed_at)}{f' by {pause.by}' if pause.by else ''}{until}"
            + (f": {pause.reason}" if pause.reason else ""))


def resume_command(pause: Pause) -> str:
    """Return the command that ends a pause."""
    return command_line("fleetctl resume", [] if pause.model is None else [pause.model],
                        f"--fleet {quote(pause.fleet)}")


def is_outdated(replica: Replica, model: ResolvedModel) -> bool:
    """Return whether a replica is known to have been started with a different spec than the file's."""
    return replica.spec_hash is not None and not model.has_spec(replica.spec_hash)


def variant_of(model: ResolvedModel, replica: Replica) -> int | None:
    """Return the place of a replica's variant in its model, 0 in a model without variants.

    None = it is outdated, and of a variant that the file does not have.
    """
    return model.variant_of(replica.spec_hash, replica.variant) if model.variants else 0


def variant_name(model: ResolvedModel | None, replica: Replica) -> str:
    """Return the name of a replica's variant in the file, else the one in its mark; empty = none.

    `model` = its model in the file, if there is one.
    """
    return model.variant_name(replica.spec_hash, replica.variant) if model else replica.variant or ""


def in_fixed_order(replicas: Iterable[Replica]) -> Iterator[Replica]:
    """Yield replicas by model and id; sorted per model, since comparing 50,000 names with each other is slow."""
    by_model = grouped((replica.model, replica) for replica in replicas)
    for model in sorted(by_model):
        yield from sorted(by_model[model], key=lambda replica: (
            -1 if replica.replica_id is None else replica.replica_id, replica.fleet or "", replica.foreign_id or "",
            replica.actor_id or ""))


def _add(state: LiveState, replica: Replica, names: Mapping[str, str], *, marked: bool, ours: bool, lost: bool) -> None:
    model = state.models.get(replica.model)
    if model is not None and replica.replica_id is not None:
        model.taken_ids.add(replica.replica_id)
        if replica.level == "HOT":
            model.hot_ids.add(replica.replica_id)
    if replica.level != "HOT":
        if ours and model is not None:
            model.not_hot.append(replica)
    elif ours and lost:
        state.lost.append(_lost(replica, names))
        if model is not None:
            model.lost.append(replica)
    elif ours and model is not None:
        model.live.append(replica)
    elif not lost:
        state.unmanaged.append(_unmanaged(replica, names, marked=marked))
        if model is not None and replica.fleet is not None and not marked:
            model.claimed_by.add(replica.fleet)


def _node_names(replica: Replica, names: Mapping[str, str]) -> list[str]:
    node_ids = {member.node_id for member in replica.members if member.node_id is not None}
    return sorted(names.get(node_id, node_id) for node_id in node_ids)


def _lost(replica: Replica, names: Mapping[str, str]) -> Lost:
    from fleetctl.documents.plan import Lost  # slow to import, and `status` does not need it

    evict = command_line("fleetctl evict", [f"{replica.model}/{replica.replica_id or 0}"])
    why = ("one of its nodes is dead" if replica.constructed
           else f"its constructor never returned, so it serves nothing; `{evict}` removes it")
    return Lost(model=replica.model, replica_id=replica.replica_id or 0,
                code="NODE_DEAD" if replica.constructed else "NEVER_CONSTRUCTED",
                nodes=_node_names(replica, names),
                message=f"its actor is {replica.state} but {why}; not counted, its id is not reused")


def _unmanaged(replica: Replica, names: Mapping[str, str], *, marked: bool) -> Unmanaged:
    from fleetctl.documents.plan import Unmanaged

    if marked and replica.replica_id is None:
        message = "has this fleet's mark but no replica id; counted as capacity in use"
    elif marked:
        message = "runs under this fleet but is not in its file; kept"
    elif replica.fleet is not None:
        message = f"belongs to fleet {replica.fleet}; counted as capacity in use"
    else:
        message = "belongs to no fleet; counted as capacity in use"
    return Unmanaged(
        model=replica.model, replica_id=replica.replica_id, foreign_id=replica.foreign_id, fleet=replica.fleet,
        state=replica.state, nodes=_node_names(replica, names), message=message,
    )
