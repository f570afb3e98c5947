"""Quotas: how much the models with some labels may have in all, live and planned together. They never remove anything.

What a quota leaves goes to higher priorities first, then to models that have no replica, then in file order. How many
GPUs a member takes that asks for VRAM alone is known only when its card is, so replicas are counted again once placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.documents.fleet import Quota
from fleetctl.documents.quantity import amount_of, count_of, format_share
from fleetctl.documents.selector import matches
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.live import LiveState
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.pack import Packing
from fleetctl.planner.policy import policy_at

NO_LIMIT = 1 << 62
ROUNDS = 8
"""How often what one model leaves of a quota is offered to others."""


@dataclass(slots=True)
class _Standing:
    """One quota, and what counts towards it; GPUs in 1/10000."""

    quota: Quota
    live_replicas: int
    live_gpus: int
    new_replicas: int = 0
    new_gpus: int = 0

    def more(self, gpus: int) -> int:
        """Return how many more replicas of so many GPUs it allows."""
        replicas, most = self.quota.replicas, self.quota.gpus
        by_count = NO_LIMIT if replicas is None else replicas - self.live_replicas - self.new_replicas
        by_gpus = NO_LIMIT if most is None or not gpus else (most - self.live_gpus - self.new_gpus) // gpus
        return max(0, min(by_count, by_gpus))

    def add(self, replicas: int, gpus: int) -> None:
        """Count new replicas of so many GPUs each."""
        self.new_replicas += replicas
        self.new_gpus += replicas * gpus


class Quotas:
    """The quotas of a fleet, each with what is live of its models."""

    def __init__(self, fleet: ResolvedFleet, state: LiveState) -> None:
        self._fleet = fleet
        self._quotas: list[_Standing] = []
        self._of: dict[str, list[int]] = {}
        for number, quota in enumerate(fleet.policy.quotas):
            keys = [model.key for model in fleet.models if matches(quota.selector, model.labels)]
            live = [replica for key in keys for replica in state.models[key].live]
            gpus = sum(member.gpus for replica in live for member in replica.members)
            self._quotas.append(_Standing(quota, len(live), gpus))
            for key in keys:
                self._of.setdefault(key, []).append(number)

    def allowed(self, demands: Sequence[Demand], at_most: Mapping[int, int]) -> list[Demand]:
        """Return the demands with as many replicas as the quotas allow, and `at_most` so many, by place."""
        left = {demand.place: min(demand.missing, at_most.get(demand.place, NO_LIMIT)) for demand in demands}
        asked: Counter[int] = Counter()
        counts = self._counts()
        for demand, most in _in_turn(demands):
            gpus, place = _least_gpus(demand.shape), demand.place
            mine = counts.get(demand.shape.key, [])
            count = min([left[place] - asked[place], most, *(one.more(gpus) for one in mine)])
            asked[place] += count
            for one in mine:
                one.add(count, gpus)
        return [replace(demand, missing=asked[demand.place]) for demand in demands]

    def keeps(self, placed: Iterable[Placed]) -> Counter[int]:
        """Return how many of the placed replicas of each demand are within the quotas, by place."""
        waiting: dict[int, list[Placed]] = {}
        for one in placed:
            waiting.setdefault(one.demand.place, []).append(one)
        kept: Counter[int] = Counter()
        counts = self._counts()
        for demand, most in _in_turn([found[0].demand for found in waiting.values()]):
            mine = counts.get(demand.shape.key)
            if not mine:
                kept[demand.place] = len(waiting[demand.place])
                continue
            for one in waiting[demand.place][kept[demand.place]:][:most]:
                gpus = one.gpus
                if any(not standing.more(gpus) for standing in mine):
                    break
                kept[demand.place] += 1
                for standing in mine:
                    standing.add(1, gpus)
        return kept

    def after(self, placed: Iterable[Placed]) -> Totals:
        """Return what the quotas leave once all of `placed` is counted."""
        counts, most = self._counts(), dict[int, int]()
        for one in placed:
            most[one.demand.place] = max(one.gpus, most.get(one.demand.place, 0))
            for standing in counts.get(one.demand.shape.key, ()):
                standing.add(1, one.gpus)
        return Totals(self._fleet, counts, most)

    def _counts(self) -> dict[str, list[_Standing]]:
        """Return the quotas of each model as they are before a plan, to count with."""
        counts = [replace(one) for one in self._quotas]
        return {key: [counts[number] for number in mine] for key, mine in self._of.items()}


@dataclass(frozen=True, slots=True)
class Totals:
    """The quotas of each model with a plan counted; `most` = the most GPUs of one new replica by place."""

    fleet: ResolvedFleet
    standing: Mapping[str, Sequence[_Standing]]
    most: Mapping[int, int]

    def leave(self, demand: Demand) -> int:
        """Return how many more replicas of this demand the quotas allow."""
        need = self._need(demand)
        return min((one.more(need) for one in self.standing.get(demand.shape.key, ())), default=NO_LIMIT)

    def why(self, demand: Demand) -> str:
        """Return the arithmetic of the quota that allows no more of this demand."""
        need, standing = self._need(demand), self.standing[demand.shape.key]
        one = next((one for one in standing if not one.more(need)), standing[0])
        live, new = one.live_replicas, one.new_replicas
        whose = ", ".join(f"{key}={value}" for key, value in one.quota.selector.items()) or "every model"
        if one.quota.replicas is not None and live + new >= one.quota.replicas:
            sums = f"needs 1 replica, 0 left of {count_of(one.quota.replicas, 'replica')}: {live} live, {new} planned"
        else:
            limit = one.quota.gpus or 0
            known = need != _least_gpus(demand.shape) or need == demand.shape.gpu_units
            left = format_share(max(0, limit - one.live_gpus - one.new_gpus))
            asked = amount_of(need, "GPU") if known else "a share of a card"
            sums = (f"needs {asked}, {left} left of {amount_of(limit, 'GPU')}: {format_share(one.live_gpus)} live, "
                    f"{format_share(one.new_gpus)} planned")
        return f"{sums}; {policy_at(self.fleet, 'quotas', whose)}"

    def _need(self, demand: Demand) -> int:
        return max(_least_gpus(demand.shape), self.most.get(demand.place, 0))


@dataclass(frozen=True, slots=True)
class WithinQuotas:
    """A packing within the quotas: what was asked of it, and the places of demands for which there was no room."""

    packing: Packing
    asked: Sequence[Demand]
    no_room: frozenset[int]

    def short(self, placed: Sequence[Placed]) -> list[Demand]:
        """Return what found no room and is not `placed` since, and would be allowed by the quotas."""
        counts = Counter(one.demand.place for one in placed)
        return [replace(one, missing=one.missing - counts[one.place])
                for one in self.asked if one.place in self.no_room]


def pack_within(
    quotas: Quotas, demands: Sequence[Demand], packed: Callable[[Sequence[Demand]], Packing], undo: Callable[[], None]
) -> WithinQuotas:
    """Pack what the quotas allow; what finds no room leaves its part of a quota to others. `undo` takes a packing back.

    Each round either lowers what is asked of a model for good, or is the last one.
    """
    at_most: dict[int, int] = {}
    no_room: set[int] = set()
    rounds = 0
    while True:
        asked = quotas.allowed(demands, at_most)
        packing = packed(asked)
        placed = Counter(one.demand.place for one in packing.placed)
        kept = quotas.keeps(packing.placed)
        short = {demand.place: placed[demand.place] for demand in asked if placed[demand.place] < demand.missing}
        over = {place: kept[place] for place in placed if kept[place] < placed[place]}
        if not over:
            no_room |= short.keys()
            offered = quotas.allowed(demands, {**at_most, **short}) if rounds < ROUNDS else asked
            if all(new.missing <= old.missing for new, old in zip(offered, asked, strict=True)):
                return WithinQuotas(packing, asked, frozenset(no_room))
        undo()
        at_most |= over or short
        rounds += 1


def _least_gpus(shape: ReplicaShape) -> int:
    """Return the GPUs a replica takes at the least: a member that asks for VRAM alone takes some share of a card."""
    return shape.gpu_units + sum(count for (claim, _), count in shape.kinds.items() if claim.vram and not claim.gpus)


def _in_turn(demands: Sequence[Demand]) -> list[tuple[Demand, int]]:
    """Return the demands in the order they are served, each with the most it may take at that turn."""
    first = [(-demand.priority, 0, demand.place, demand, 1) for demand in demands if not demand.live]
    rest = [(-demand.priority, 1, demand.place, demand, NO_LIMIT) for demand in demands]
    return [(demand, most) for *_, demand, most in sorted(first + rest, key=lambda turn: turn[:3])]
