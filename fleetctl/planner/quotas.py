"""Quotas: limits on the live and planned replicas of all models with certain labels. They never remove anything.

A quota is used up by higher priorities first, then by models without a replica, then in file order. The GPU share of a
member that claims only VRAM is known once its card is chosen, so replicas are counted again after they are placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from fleetctl.documents.fleet import Quota
from fleetctl.documents.quantity import amount_of, count_of, format_share, grouped
from fleetctl.documents.selector import matches
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.live import LiveState
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.demand import Demand, Option, Placed
from fleetctl.planner.placement.pack import Packing
from fleetctl.planner.policy import policy_at

NO_LIMIT = 1 << 62
NO_MOST: Mapping[int, int] = {}
ROUNDS = 8
"""How many times the unused part of a quota is offered to other models, and how many models with variants get more."""


@dataclass(slots=True)
class _Usage:
    """One quota, its number in the file, and what counts toward it; GPUs in 1/10000."""

    quota: Quota
    number: int
    live_replicas: int
    live_gpus: int
    new_replicas: int = 0
    new_gpus: int = 0

    def more(self, gpus: int) -> int:
        """Return how many more replicas of `gpus` each it allows."""
        replicas, most = self.quota.replicas, self.quota.gpus
        by_count = NO_LIMIT if replicas is None else replicas - self.live_replicas - self.new_replicas
        by_gpus = NO_LIMIT if most is None or not gpus else (most - self.live_gpus - self.new_gpus) // gpus
        return max(0, min(by_count, by_gpus))

    def add(self, replicas: int, gpus: int) -> None:
        """Count new replicas of `gpus` each."""
        self.new_replicas += replicas
        self.new_gpus += replicas * gpus


class Quotas:
    """The quotas of a fleet, each with the live replicas of its models."""

    def __init__(self, fleet: ResolvedFleet, state: LiveState) -> None:
        self._fleet, self._state = fleet, state
        self.limit_nothing = not fleet.policy.quotas
        self._quotas: list[_Usage] = []
        self._of: dict[str, list[int]] = {}
        for number, quota in enumerate(fleet.policy.quotas):
            keys = [model.key for model in fleet.models if matches(quota.selector, model.labels)]
            live = [replica for key in keys for replica in state.models[key].live]
            gpus = sum(member.gpus for replica in live for member in replica.members)
            self._quotas.append(_Usage(quota, number, len(live), gpus))
            for key in keys:
                self._of.setdefault(key, []).append(number)

    def limits(self, key: str) -> bool:
        """Return whether a quota counts the replicas of this model."""
        return key in self._of

    def beside(self, taken: Iterable[tuple[str, int]]) -> Quotas:
        """Return these quotas with new replicas counted too: the model and the GPUs of each."""
        found = Quotas(self._fleet, self._state)
        found._quotas = [replace(one) for one in self._quotas]
        for key, gpus in taken:
            for number in self._of.get(key, ()):
                found._quotas[number].add(1, gpus)
        return found

    def allowed(
        self, demands: Sequence[Demand], at_most: Mapping[int, int] = NO_MOST, placed: Iterable[Placed] = ()
    ) -> list[Demand]:
        """Return the demands with as many replicas as the quotas allow beside `placed`, and `at_most`, by place."""
        limit = {demand.place: min(demand.missing, at_most.get(demand.place, NO_LIMIT)) for demand in demands}
        granted: Counter[int] = Counter()
        usages = self._usages(placed)
        smallest = sorted(demands, key=lambda demand: _least_gpus(demand.shape))
        ways = grouped((demand.place, demand) for demand in smallest)
        left = {demand.option: demand.at_most for demand in demands}
        for first, most in _in_turn([found[0] for found in ways.values()]):
            own, place = usages.get(first.shape.key, []), first.place
            end = min(limit[place], granted[place] + most)
            for demand in ways[place]:  # which variants are placed is known later: the smallest are assumed
                gpus = _least_gpus(demand.shape)
                count = min([end - granted[place], left[demand.option], *(usage.more(gpus) for usage in own)])
                granted[place] += count
                left[demand.option] -= count
                for usage in own:
                    usage.add(count, gpus)
        return [replace(demand, missing=granted[demand.place]) for demand in demands]

    def keeps(self, placed: Iterable[Placed]) -> Counter[int]:
        """Return how many of the placed replicas of each demand are within the quotas, by place."""
        by_place = grouped((one.demand.place, one) for one in placed)
        kept: Counter[int] = Counter()
        usages = self._usages()
        for demand, most in _in_turn([found[0].demand for found in by_place.values()]):
            own = usages.get(demand.shape.key)
            if not own:
                kept[demand.place] = len(by_place[demand.place])
                continue
            # a packing of fewer has the smallest of them
            smallest = sorted(by_place[demand.place], key=lambda one: one.demand.shape.gpu_units)
            for one in smallest[kept[demand.place]:][:most]:
                gpus = one.gpus
                if any(not usage.more(gpus) for usage in own):
                    break
                kept[demand.place] += 1
                for usage in own:
                    usage.add(1, gpus)
        return kept

    def left_for(self, demands: Sequence[Demand], places: Set[int], placed: Sequence[Placed]
                 ) -> tuple[int, int, list[Demand]] | None:
        """Return the first of these models with variants of which more would be within the quotas, with how many.

        And the demands, in which each of its variants takes no more than the quotas leave for it alone.
        """
        totals, new = self.after(placed), Counter(one.demand.option for one in placed)
        for place, ways in grouped((demand.place, demand) for demand in demands if demand.place in places).items():
            left = {demand.option: min(demand.at_most, new[demand.option] + totals.leave(demand)) for demand in ways}
            have = sum(new[option] for option in left)
            if len(ways) > 1 and (more := min(ways[0].missing, sum(left.values())) - have) > 0:
                return place, have + more, [
                    replace(one, most=left[one.option]) if one.place == place else one for one in demands]
        return None

    def after(self, placed: Iterable[Placed]) -> Totals:
        """Return the quotas after all of `placed` is counted."""
        found, most = list(placed), dict[Option, int]()
        for one in found:
            most[one.demand.option] = max(one.gpus, most.get(one.demand.option, 0))
        return Totals(self._fleet, self._usages(found), most)

    def allow(self, shape: ReplicaShape, gpus: Sequence[int]) -> tuple[int, str]:
        """Return how many new replicas of a shape are allowed, with the GPUs of each in this order; why not one more.

        The text is empty if one more is allowed.
        """
        own, count = self._usages().get(shape.key, []), 0
        while count < len(gpus) and all(usage.more(gpus[count]) for usage in own):
            for usage in own:
                usage.add(1, gpus[count])
            count += 1
        need = gpus[count] if count < len(gpus) else max(gpus, default=0)
        demand = Demand(shape, 1, 1, 0, 0)
        totals = Totals(self._fleet, {shape.key: own}, {demand.option: need})
        return count, "" if totals.leave(demand) else totals.why(demand, "new")

    def _usages(self, placed: Iterable[Placed] = ()) -> dict[str, list[_Usage]]:
        """Return copies of the quotas of each model: those before a plan, plus what is `placed`."""
        copies = [replace(one) for one in self._quotas]
        usages = {key: [copies[number] for number in own] for key, own in self._of.items()}
        for one in placed:
            for usage in usages.get(one.demand.shape.key, ()):
                usage.add(1, one.gpus)
        return usages


@dataclass(frozen=True, slots=True)
class Totals:
    """The quotas of each model after a plan; `most` = the most GPUs of one new replica, by model and variant."""

    fleet: ResolvedFleet
    usages: Mapping[str, Sequence[_Usage]]
    most: Mapping[Option, int]

    def leave(self, demand: Demand) -> int:
        """Return how many more replicas of this demand the quotas allow."""
        need = self._need(demand)
        return min((one.more(need) for one in self.usages.get(demand.shape.key, ())), default=NO_LIMIT)

    def why(self, demand: Demand, new_word: str = "planned") -> str:
        """Return the arithmetic of the quota that allows no more of this demand; `new_word` = what new replicas are."""
        need, usages = self._need(demand), self.usages[demand.shape.key]
        one = next((one for one in usages if not one.more(need)), usages[0])
        live, new = one.live_replicas, one.new_replicas
        selected = ", ".join(f"{key}={value}" for key, value in one.quota.selector.items()) or "every model"
        if one.quota.replicas is not None and live + new >= one.quota.replicas:
            sums = (f"needs 1 replica, 0 left of {count_of(one.quota.replicas, 'replica')}: {live} live, "
                    f"{new} {new_word}")
        else:
            limit = one.quota.gpus or 0
            known = need != _least_gpus(demand.shape) or need == demand.shape.gpu_units
            left = format_share(max(0, limit - one.live_gpus - one.new_gpus))
            amount = amount_of(need, "GPU") if known else "a share of a card"
            sums = (f"needs {amount}, {left} left of {amount_of(limit, 'GPU')}: {format_share(one.live_gpus)} live, "
                    f"{format_share(one.new_gpus)} {new_word}")
        return f"{sums}; {policy_at(self.fleet, 'quotas', selected, one.number)}"

    def _need(self, demand: Demand) -> int:
        return max(_least_gpus(demand.shape), self.most.get(demand.option, 0))


@dataclass(frozen=True, slots=True)
class WithinQuotas:
    """A packing within the quotas: the demands it got, and the places of those without room."""

    packing: Packing
    asked: Sequence[Demand]
    no_room: frozenset[int]


def pack_within(
    quotas: Quotas, demands: Sequence[Demand], packed: Callable[[Sequence[Demand]], Packing], undo: Callable[[], None]
) -> WithinQuotas:
    """Pack what the quotas allow; replicas without room leave their part of a quota to others. `undo` undoes a packing.

    Each round either permanently lowers the demand of a model, or is the last one. The bound of a round in which models
    had no room holds for the last one, too, which asks for less. Only a model with variants gets what is left at last:
    its demand was lowered while others took more GPUs than they have now.
    """
    at_most: dict[int, int] = {}
    no_room, tried = set[int](), set[int]()
    former: tuple[Sequence[Demand], dict[int, int], int] | None = None
    rounds, gap, method = 0, 0, ""
    if quotas.limit_nothing:
        packing = packed(demands)
        placed = Counter(one.demand.place for one in packing.placed)
        return WithinQuotas(packing, demands, frozenset(
            demand.place for demand in demands if placed[demand.place] < demand.missing))
    while True:
        asked = quotas.allowed(demands, at_most)
        packing = packed(asked)
        placed = Counter(one.demand.place for one in packing.placed)
        kept = quotas.keeps(packing.placed)
        short = {demand.place: placed[demand.place] for demand in asked if placed[demand.place] < demand.missing}
        over = {place: kept[place] for place in placed if kept[place] < placed[place]}
        if former is not None and (over or placed.total() <= former[2]):
            undo()
            (demands, at_most, _), former = former, None
            continue
        former = None
        if not over:
            no_room |= short.keys()
            offered = quotas.allowed(demands, {**at_most, **short}) if rounds < ROUNDS else asked
            if all(new.missing <= old.missing for new, old in zip(offered, asked, strict=True)):
                places = {one.place for one in demands} - tried - short.keys() if len(tried) < ROUNDS else set[int]()
                if more := quotas.left_for(demands, places, packing.placed):
                    undo()
                    tried.add(more[0])
                    gap, former = max(gap, packing.bound - placed.total()), (demands, at_most, placed.total())
                    demands = more[2]  # all others keep the number that they have
                    at_most = {**{one.place: placed[one.place] for one in demands}, more[0]: more[1]}
                    continue
                bounded = packing._replace(bound=packing.bound + gap, method=packing.method or method)
                return WithinQuotas(bounded, asked, frozenset(no_room))
            gap, method = max(gap, packing.bound - len(packing.placed)), packing.method
        undo()
        at_most |= over or short
        rounds += 1


def _least_gpus(shape: ReplicaShape) -> int:
    """Return the fewest GPUs a replica can take: a member that claims only VRAM takes some share of a card."""
    return shape.gpu_units + sum(count for (claim, _), count in shape.kinds.items() if claim.vram and not claim.gpus)


def _in_turn(demands: Sequence[Demand]) -> list[tuple[Demand, int]]:
    """Return the demands in the order they are served, each with the most replicas it may take in that turn."""
    first = [(-demand.priority, 0, demand.place, demand, 1) for demand in demands if not demand.live]
    rest = [(-demand.priority, 1, demand.place, demand, NO_LIMIT) for demand in demands]
    return [(demand, most) for *_, demand, most in sorted(first + rest, key=lambda turn: turn[:3])]
