"""The packer: which replicas to place, where, and in which order to create them.

`docs/engine.md` describes the steps. Each result is compared with the best packing so far by one objective
(objective.py), so no step makes a plan worse. Work is counted in steps, so the answer does not depend on the machine.
The result is in order of creation. Modules that are not needed when everything fits are imported where they are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.planner.placement.demand import Demand, Expected, Placed, count_missing
from fleetctl.planner.placement.greedy import pack_greedily, take_again, top_up
from fleetctl.planner.placement.ledger.card_value import tells_cards_apart
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.objective import (
    Levels,
    Score,
    count_options,
    crowding,
    levels_of,
    proper,
    score,
    total_price,
    wanted_levels,
)
from fleetctl.planner.placement.problem import Problem, state_demand, state_problem

if TYPE_CHECKING:
    from fleetctl.planner.placement.exact.exact import Proven
    from fleetctl.planner.placement.room_worth import RoomWorth

REARRANGE_STEPS = 30_000
"""The most members that remove and reinsert may place."""
SPREAD_STEPS, SPREAD_WORK = 3_000, 2_000_000
"""The most placements that spreading may try, and the most placements times nodes."""
PATTERN_STEPS = 3_000
"""The most pricings of a class of nodes."""
FEW = 1_000
"""Up to this many replicas, all tiers are tried for the last one, and each goes where it leaves most room."""
MANY = 20_000
"""Beyond this many missing replicas, patterns and the pass that leaves room are skipped."""


class Packing(NamedTuple):
    """New replicas in order of creation, and a bound on better packings."""

    placed: list[Placed]
    bound: int
    """No packing that is as good has more new replicas."""
    method: str = ""
    """The argument for the bound."""


def pack(
    demands: Sequence[Demand], placer: Placer, *, expected: Sequence[Expected] = (), on_ledger: bool = True
) -> Packing:
    """Place as much as fits on the placer's ledger, leaving as much room as possible for what is `expected`.

    With `on_ledger=False` the ledger may be left unchanged if everything is placed.
    """
    wanted = [demand for demand in demands if demand.at_most > 0]
    if not wanted:
        return Packing([], 0)
    ledger = placer.ledger
    ledger.prices = None
    if any(demand.variant for demand in wanted) and any(node.policy.price is not None for node in ledger.nodes):
        from fleetctl.planner.placement.prices import prices_between

        ledger.prices = prices_between(wanted, ledger)
    mark, room_pass = ledger.mark(), _RoomPass(ledger, expected)
    count = count_missing(wanted)
    few = bool(expected) and count <= FEW
    first = None
    if few and all(demand.shape.spread is None for demand in wanted):
        first = room_pass.place(wanted, by_value=True)
        price = 0 if ledger.prices is None else total_price(first, ledger.prices)
        if len(first) == count and (
                not any(demand.variant for demand in wanted)
                or levels_of(wanted, count_options(first), price) == wanted_levels(wanted, ledger)):
            return Packing(first, count)
        ledger.undo(mark)
        if tells_cards_apart(ledger):
            first = None  # as a start for more replicas, the pass that looks at room alone is better
    packing = _pack_reduced(wanted, ledger, room_pass, first, on_ledger=on_ledger or few)
    if not few:
        return packing
    placed = leave_room(packing.placed, mark, ledger, room_pass)
    if len(placed) < count:
        top_up(wanted, placed, placer)
    return packing._replace(placed=placed)


@dataclass
class _RoomPass:
    """A pass that leaves room for what else is `expected` of a fleet; prices are set once, at the first placement."""

    ledger: Ledger
    expected: Sequence[Expected]

    def place(self, demands: Sequence[Demand], *, by_value: bool = False) -> list[Placed]:
        """Place as much as fits in one pass, each member where it costs the others least; the result stays taken.

        `by_value` = on the least valuable kind of card, unless another costs the others clearly less.
        """
        placer = Placer(self.ledger, self._worth, spread_first=True, by_value=by_value)
        return pack_greedily(state_demand(demands, self.ledger), placer)

    @cached_property
    def _worth(self) -> RoomWorth:
        from fleetctl.planner.placement.room_worth import RoomWorth

        return RoomWorth(self.ledger, self.expected)


def leave_room(placed: list[Placed], mark: int, ledger: Ledger, room_pass: _RoomPass) -> list[Placed]:
    """Place as many replicas of each variant again where they leave most room; keep the packing if they do not fit.

    `placed` is on the ledger, since `mark`; the result replaces it there. Written spreads come first.
    """
    counts = count_options(placed)
    demand_of = {replica.demand.option: replica.demand for replica in placed}
    of_model = Counter(replica.demand.place for replica in placed)
    before = score(placed, (), crowding(demand_of.values(), ledger), 0, ledger)
    ledger.undo(mark)
    demands = [replace(demand, missing=of_model[demand.place], least=0, target=None,
                       most=None if counts[option] == of_model[demand.place] else counts[option])
               for option, demand in demand_of.items()]
    again = room_pass.place(demands, by_value=True)
    prices = ledger.prices
    dearer = prices is not None and total_price(again, prices) > total_price(placed, prices)
    if len(again) == len(placed) and not dearer and score(again, (), crowding(demands, ledger), 0, ledger) >= before:
        return [replica._replace(demand=demand_of[replica.demand.option]) for replica in again]
    ledger.undo(mark)
    take_again(placed, Placer(ledger))
    return placed


def _pack_reduced(
    wanted: Sequence[Demand], ledger: Ledger, room_pass: _RoomPass, first: Sequence[Placed] | None, *, on_ledger: bool
) -> Packing:
    """Pack the reduced problem; `first` = the result of a pass with room on the true one, None = not tried."""
    from fleetctl.planner.placement.reduce import reduce_problem

    reduced = reduce_problem(state_problem(wanted, ledger), wanted)
    mark = ledger.mark()

    def place_with_room() -> list[Placed]:
        placed = first
        if placed is None:
            placed = room_pass.place(wanted) if room_pass.expected else ()
        ledger.undo(mark)
        reduced_demand = {demand.option: demand for demand in reduced.demands}
        return [replica._replace(demand=reduced_demand[replica.demand.option]) for replica in placed]

    packing = _pack(reduced.demands, reduced.ledger, place_with_room)
    placed = reduced.restored(packing.placed)
    if not on_ledger and len(placed) == count_missing(wanted):
        return packing._replace(placed=placed)
    if len(take_again(placed, Placer(ledger))) == len(placed):
        return packing._replace(placed=placed)
    ledger.undo(mark)
    return _pack(wanted, ledger)


def _pack(wanted: Sequence[Demand], ledger: Ledger, other: Callable[[], list[Placed]] = list) -> Packing:
    """Pack on the ledger, which then holds the result; `other` returns the result of another pass."""
    search = _Search(state_problem(wanted, ledger), wanted)
    search.try_greedily()
    if search.is_done:
        search.spread_out()
        return Packing(search.best, len(search.best))
    from fleetctl.planner.placement.exact.exact import argument_for, bound_replicas, examine, examine_at_last

    examined = search.use_exact(examine(search.problem, search.levels))
    if search.has_variants and search.is_good_enough and not search.is_done:
        search.follow_bound(examined.replicas)
    tiers: list[Callable[[], None]] = [
        partial(search.try_other, other), search.try_patterns, partial(search.follow_bound, examined.replicas),
        search.rearrange]
    for tier in tiers:
        if not search.is_good_enough:
            tier()
    if not search.is_done:
        missing = len(search.best) < sum(level.replicas for level in proper(search.ceiling))
        solve = missing and not search.is_good_enough
        examined = search.use_exact(examine_at_last(examined, search.levels, solve=solve))
    search.spread_out()
    search.restore_best()
    have = len(search.best)
    bound = have if search.is_proven else max(have + 1, bound_replicas(examined, search.levels))
    return Packing(search.best, bound, argument_for(bound, examined))


class _Search:
    """The best packing so far; the ledger holds either that or nothing new.

    `opening` = the numbers of the nodes' offers at the start; `spreading` puts written spreads first, None without any.
    """

    def __init__(self, problem: Problem, wanted: Sequence[Demand]) -> None:
        ledger = problem.ledger
        self.problem, self.wanted, self.count = problem, wanted, count_missing(wanted)
        self.has_variants = problem.has_variants
        self.best: list[Placed] = []
        self.levels: Levels = ()
        self.ceiling = wanted_levels(wanted, ledger)
        self.placer, self.opening = Placer(ledger), list(ledger.numbers)
        spread = any(demand.shape.spread is not None for demand in wanted)
        self.spreading = Placer(ledger, spread_first=True) if spread else None
        self._start = ledger.mark()
        self._score: Score | None = None
        self._is_on_ledger = False  # the best packing is what the ledger holds

    @property
    def is_done(self) -> bool:
        """Whether no packing can be better than the best one found."""
        return self.levels == self.ceiling

    @property
    def is_proven(self) -> bool:
        """Whether no packing can have higher levels, whatever variants it takes."""
        return proper(self.levels) == proper(self.ceiling)

    @property
    def is_good_enough(self) -> bool:
        """Whether to stop: nothing can be better, or a large fleet is within a thousandth of each bound."""
        if self.is_done or self.count < FEW:
            return self.is_done
        levels = zip(proper(self.levels), proper(self.ceiling), strict=True)
        return all(have * 1000 >= best * 999 for level, top in levels for have, best in zip(level, top, strict=True))

    def try_greedily(self) -> None:
        """One pass over the classes of demand, scarce classes first.

        With the least valuable cards first if there are several kinds, and with written spreads first if there are any.
        Each may cost room, so if replicas are missing, another pass without it follows.
        """
        if tells_cards_apart(self.problem.ledger):
            by_value = Placer(self.problem.ledger, spread_first=self.spreading is not None, by_value=True)
            placed = pack_greedily(self.problem, by_value)
            if len(placed) == self.count:
                self._keep_if_better(placed)
                if self.is_done:
                    return
            self._clear()
        if self.spreading is not None:
            self._keep_if_better(pack_greedily(self.problem, self.spreading))
            if self.is_done:
                return
            self._clear()
        self._keep_if_better(pack_greedily(self.problem, self.placer))
        if self.has_variants and not self.is_done:
            self._clear()
            self._keep_if_better(pack_greedily(self.problem, self.placer, apart=True))

    def try_other(self, other: Callable[[], list[Placed]]) -> None:
        """Try the result of another pass."""
        if self.count <= MANY and (placed := other()):
            self._clear()
            self._keep_if_better(take_again(placed, self.placer))

    def use_exact(self, examined: Proven) -> Proven:
        """Take the bound of the exact tier as the ceiling, and try its layout if it has one; return `examined`."""
        self.ceiling = examined.levels
        if examined.layout is not None and not self.is_done:
            from fleetctl.planner.placement.realize import realize

            self._clear()
            self._keep_if_better(realize(self.problem, examined.layout, self.placer))
        return examined

    def try_patterns(self) -> None:
        """Pack the replicas of one member again by column generation, around the gangs of the best packing.

        Not with variants: patterns know no model that several columns share.
        """
        singles = [demand for demand in self.wanted if demand.shape.size == 1]
        alone = [replica for replica in self.best if len(replica.assignments) == 1]
        if self.has_variants or self.count > MANY or len(alone) == sum(demand.missing for demand in singles):
            return
        from fleetctl.planner.placement.patterns import pack_by_patterns
        from fleetctl.planner.placement.realize import layout_of, realize

        self._clear()
        gangs = take_again([replica for replica in self.best if len(replica.assignments) > 1], self.placer)
        problem = state_problem(singles, self.problem.ledger)
        layout = pack_by_patterns(problem, steps=PATTERN_STEPS, incumbent=layout_of(problem, alone))
        placed = realize(problem, layout, self.placer)
        served = {replica.demand.place for replica in placed}
        first = {replica.demand.place: replica for replica in alone
                 if replica.demand.live == 0 and replica.demand.place not in served}
        if first:  # rounding left models out: their first replicas stay where they were, with the layout around them
            self._clear()
            gangs = take_again([*gangs, *first.values()], self.placer)
            placed = realize(problem, layout, self.placer)
        self._keep_if_better([*gangs, *placed])

    def follow_bound(self, replicas: Sequence[int] | None) -> None:
        """One more greedy pass, with at most as many replicas of each class of demand as in the bound.

        Large replicas yield to more small ones that fill as many cards.
        """
        if replicas is not None:
            self._clear()
            self._keep_if_better(pack_greedily(self.problem, self.placer, replicas))

    def rearrange(self) -> None:
        """Improve the best packing by removing and reinserting."""
        from fleetctl.planner.placement.rearrange import rearrange

        self.restore_best()
        self._keep_if_better(rearrange(self._by_rank(), self.best, self.placer, opening=self.opening,
                                       steps=REARRANGE_STEPS, enough=self.ceiling))

    def spread_out(self) -> None:
        """Improve written spreads as far as the best packing allows."""
        if self.spreading is not None:
            from fleetctl.planner.placement.spread_out import pack_again, spread_out

            if len(self.best) < self.count:
                self._clear()
                self._keep_if_better(pack_again(self.best, self.spreading))
            self.restore_best()
            steps = min(SPREAD_STEPS, SPREAD_WORK // max(1, len(self.problem.ledger.nodes)))
            self._keep_if_better(
                spread_out(self._by_rank(), self.best, self.spreading, opening=self.opening, steps=steps))

    def restore_best(self) -> None:
        """Put the best packing on the ledger if it is not there."""
        if not self._is_on_ledger:
            take_again(self.best, self.placer)
            self._is_on_ledger = True

    def _clear(self) -> None:
        self.problem.ledger.undo(self._start)
        self._is_on_ledger = False

    def _keep_if_better(self, placed: list[Placed]) -> None:
        """Top up a packing that is on the ledger, compare it with the best one, and keep the better one."""
        if len(placed) < self.count:
            top_up(self._by_rank(), placed, self.placer)
        crowded = 0 if self.spreading is None else crowding(self.wanted, self.problem.ledger)
        reached = score(placed, self.wanted, crowded, self._broken(placed), self.problem.ledger)
        if self._score is None or reached > self._score:
            self.best, self._score, self.levels, self._is_on_ledger = placed, reached, reached[0], True
        else:
            self._clear()

    def _broken(self, placed: Sequence[Placed]) -> int:
        """Return how many formerly empty nodes a packing uses."""
        nodes = {assigned.node for replica in placed for assigned in replica.assignments}
        return sum(self.problem.ledger.numbered(self.opening[node]).empty for node in nodes)

    def _by_rank(self) -> list[Demand]:
        return [demand for alike in self.problem.demands for demand in alike.demands]
