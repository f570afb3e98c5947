"""The packer: which replicas to place, in which order.

Priorities from high to low; inside one, models without a live replica get their first before others get more. A few
greedy orders are tried on the ledger and the best is kept, by (models served, GPU share placed, replicas placed, fewest
empty nodes broken); the file's own order wins ties. The order of the result is the order of creation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.replica import Placer

Order = Callable[[Demand], tuple[int, ...]]
Score = tuple[int, int, int, int]


def pack(demands: Sequence[Demand], placer: Placer) -> list[Placed]:
    """Place as much as fits, on the placer's ledger; the result is in order of creation."""
    wanted = [demand for demand in demands if demand.missing > 0]
    result: list[Placed] = []
    for priority in sorted({demand.priority for demand in wanted}, reverse=True):
        result += _pack_level([demand for demand in wanted if demand.priority == priority], placer)
    return _top_up(wanted, result, placer)


def _orders(placer: Placer) -> list[tuple[Order, Order]]:
    """Pairs of orders: for first replicas, and for the rest."""

    def in_file(demand: Demand) -> tuple[int, ...]:
        return (demand.place,)

    def big_first(demand: Demand) -> tuple[int, ...]:
        return (-demand.shape.gpu_units, -demand.shape.size, demand.place)

    def small_first(demand: Demand) -> tuple[int, ...]:
        return (demand.shape.gpu_units, demand.shape.size, demand.place)

    def scarce_first(demand: Demand) -> tuple[int, ...]:
        kinds = {kind for group in demand.shape.groups for kind in group.classes()}
        return (min(len(placer.candidates(kind)) for kind in kinds), *big_first(demand))

    return [(in_file, in_file), (big_first, big_first), (scarce_first, scarce_first), (small_first, big_first),
            (small_first, small_first)]


def _pack_level(level: list[Demand], placer: Placer) -> list[Placed]:
    everything = sum(demand.missing for demand in level)
    best: list[Placed] = []
    best_score: Score | None = None
    for attempt, (first, rest) in enumerate(_orders(placer)):
        if attempt > 0 and (len(level) == 1 or (attempt > 1 and len(best) == everything)):
            break
        mark = placer.ledger.mark()
        placed = _fill(sorted(level, key=first), sorted(level, key=rest), placer)
        placer.ledger.undo(mark)
        score = _score(placed, placer)
        if best_score is None or score > best_score:
            best, best_score = placed, score
    for one in best:
        placer.retake(one.demand.shape, one.stands)
    return best


def _fill(first: list[Demand], rest: list[Demand], placer: Placer) -> list[Placed]:
    result: list[Placed] = []
    left = {demand.place: demand.missing for demand in rest}
    for demand in first:
        if demand.live == 0:
            left[demand.place] -= _add(demand, 1, result, placer)
    for demand in rest:
        _add(demand, left[demand.place], result, placer)
    return result


def _add(demand: Demand, count: int, result: list[Placed], placer: Placer) -> int:
    for done in range(count):
        stands = placer.place(demand.shape)
        if stands is None:
            return done
        result.append(Placed(demand, stands))
    return count


def _score(placed: list[Placed], placer: Placer) -> Score:
    """Rate one attempt, on the ledger as it was before it."""
    served = {one.demand.place for one in placed if one.demand.live == 0}
    units = sum(stand.gpus for one in placed for stand in one.stands)
    nodes = {stand.node for one in placed for stand in one.stands}
    return len(served), units, len(placed), -sum(placer.ledger.offer(node).empty for node in nodes)


def _top_up(wanted: list[Demand], result: list[Placed], placer: Placer) -> list[Placed]:
    """Ask every model with something missing once more, until nothing changes.

    A later placement can make room: it may move Ray's next choice to a card with more memory. Without this, the plan
    after an apply could find something more to do.
    """
    before = -1
    while before != len(result):
        before = len(result)
        have = Counter(one.demand.place for one in result)
        for demand in sorted(wanted, key=lambda demand: (-demand.priority, demand.place)):
            _add(demand, demand.missing - have[demand.place], result, placer)
    return result
