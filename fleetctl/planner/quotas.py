"""Quotas: how much the models with some labels may have in all, live and planned together. They never remove anything.

What a quota leaves goes to higher priorities first, then to models that have no replica, then in file order. How many
GPUs a member takes that asks for VRAM alone is known only when its card is, so replicas are counted again once placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.documents.fleet import Quota
from fleetctl.documents.quantity import amount_of, format_share, plural
from fleetctl.documents.selector import matches
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.live import LiveState
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
            gpus, place = demand.shape.gpu_units, demand.place
            mine = self._counting(counts, demand)
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
            mine = self._counting(counts, demand)
            for one in waiting[demand.place][kept[demand.place]:][:most]:
                gpus = _gpus(one)
                if any(not standing.more(gpus) for standing in mine):
                    break
                kept[demand.place] += 1
                for standing in mine:
                    standing.add(1, gpus)
        return kept

    def leave(self, demand: Demand, placed: Iterable[Placed]) -> int:
        """Return how many more replicas of this demand the quotas allow, with all of `placed` counted."""
        standing, need = self._after(demand, placed)
        return min((one.more(need) for one in standing), default=NO_LIMIT)

    def why(self, demand: Demand, placed: Iterable[Placed]) -> str:
        """Return the arithmetic of the quota that allows no more of this demand, with all of `placed` counted."""
        standing, need = self._after(demand, placed)
        return self._sentence(next((one for one in standing if not one.more(need)), standing[0]), need)

    def _after(self, demand: Demand, placed: Iterable[Placed]) -> tuple[list[_Standing], int]:
        """Return the quotas of a demand with all of `placed` counted, and the GPUs of one more replica, at least."""
        counts, need = self._counts(), demand.shape.gpu_units
        for one in placed:
            gpus = _gpus(one)
            need = max(need, gpus) if one.demand.place == demand.place else need
            for standing in self._counting(counts, one.demand):
                standing.add(1, gpus)
        return self._counting(counts, demand), need

    def _sentence(self, one: _Standing, need: int) -> str:
        quota = one.quota
        whose = ", ".join(f"{key}={value}" for key, value in quota.selector.items()) or "every model"
        if quota.replicas is not None and one.live_replicas + one.new_replicas >= quota.replicas:
            left, limit = 0, f"{quota.replicas} {plural(quota.replicas, 'replica')}"
            asked, live, new = "1 replica", str(one.live_replicas), str(one.new_replicas)
        else:
            most = quota.gpus or 0
            left, limit = max(0, most - one.live_gpus - one.new_gpus), amount_of(most, "GPU")
            asked, live, new = amount_of(need, "GPU"), format_share(one.live_gpus), format_share(one.new_gpus)
        return (f"needs {asked}, {format_share(left)} left of {limit}: {live} live, {new} planned; "
                f"{policy_at(self._fleet, 'quotas', whose)}")

    def _counts(self) -> list[_Standing]:
        return [replace(one) for one in self._quotas]

    def _counting(self, counts: Sequence[_Standing], demand: Demand) -> list[_Standing]:
        return [counts[number] for number in self._of.get(demand.shape.key, ())]


@dataclass(frozen=True, slots=True)
class WithinQuotas:
    """A packing within the quotas: what was asked of it, and the places of demands for which there was no room."""

    packing: Packing
    asked: Sequence[Demand]
    no_room: frozenset[int]


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


def _gpus(one: Placed) -> int:
    return sum(assigned.gpus for assigned in one.assignments)


def _in_turn(demands: Sequence[Demand]) -> list[tuple[Demand, int]]:
    """Return the demands in the order they are served, each with the most it may take at that turn."""
    first = [(-demand.priority, 0, demand.place, demand, 1) for demand in demands if not demand.live]
    rest = [(-demand.priority, 1, demand.place, demand, NO_LIMIT) for demand in demands]
    return [(demand, most) for *_, demand, most in sorted(first + rest, key=lambda turn: turn[:3])]
