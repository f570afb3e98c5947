"""The quick bound: how many new replicas could be placed at most, by counting.

Each class of demand alone on the ledger can have at most so many (members of one kind per node, gangs on distinct
nodes, slots); all together cannot use more GPU, CPU or memory than there is, nor more groups of s whole cards than the
nodes hold. Counting ignores what is hard about packing, so the truth is never above it. It goes by classes of nodes and
of demand: a few milliseconds for thousands of either. `exact` and `certificate` look closer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.exact.alone import replicas_alone
from fleetctl.planner.placement.exact.tally import Tally, count_up
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.problem import state_problem


class Bound(NamedTuple):
    """No plan places more than `replicas` new ones; `method` says which count was the tightest."""

    replicas: int
    method: str


def upper_bound(demands: Sequence[Demand], ledger: Ledger) -> Bound:
    """Bound the new replicas all `demands` together can get on the ledger as it stands now (before packing)."""
    return count_bound(count_up(state_problem(demands, ledger)))


def count_bound(tally: Tally) -> Bound:
    """Bound the new replicas of all demands of a problem together."""
    alone = replicas_alone(tally)
    bounds = [Bound(sum(alone), "slots per model")]
    for name, room, cost in _amounts(tally):
        costs = [cost(claim) for claim, _ in tally.problem.kinds]
        asked = [(sum(costs[kind] * count for kind, count in demand.members().items()), most)
                 for demand, most in zip(tally.problem.demands, alone, strict=True)]
        bounds.append(Bound(_most_cheap(asked, room), name))
    return min(bounds, key=lambda bound: bound.replicas)


def _amounts(tally: Tally) -> Iterator[tuple[str, int, Callable[[Claim], int]]]:
    """Yield what adds up over nodes: its name, how much there is in all, and what a member takes of it."""
    largest = int(tally.cards.memory.max(initial=0))
    yield "free GPU share", _sum(tally.free_share, tally), lambda claim: _least_share(claim, largest)
    yield "free CPUs", _sum(tally.cpus, tally), lambda claim: claim.cpus
    yield "free memory", _sum(tally.memory, tally), lambda claim: claim.memory
    for size in sorted({claim.whole_cards for claim, _ in tally.problem.kinds} - {0}):
        room = _sum(tally.whole_cards(0) // size, tally)
        yield f"free groups of {size} whole cards on one node", room, _groups_of(size)


def _sum(per_node: Ints, tally: Tally) -> int:
    return int(tally.nodes @ per_node.clip(min=0))


def _groups_of(size: int) -> Callable[[Claim], int]:
    return lambda claim: claim.whole_cards // size


def _least_share(claim: Claim, largest_card: int) -> int:
    return claim.gpus or (-(-claim.vram * SHARE // largest_card) if claim.vram and largest_card > 0 else 0)


def _most_cheap(asked: list[tuple[int, int]], room: int) -> int:
    """Return how many replicas fit into `room` when the cheapest go first: (cost of one, how many) pairs."""
    count = 0
    for cost, wanted in sorted(asked):
        fitting = wanted if cost == 0 else min(wanted, room // cost)
        count += fitting
        room -= fitting * cost
    return count
