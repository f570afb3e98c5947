"""The quick bound: an upper bound on the new replicas that can be placed, by counting.

Each class of demand is bounded alone (members of one kind per node, gangs on distinct nodes, slots). All together
cannot use more GPU, CPU or memory than there is, nor more groups of s whole cards than the nodes hold. Counting ignores
what is hard about packing, so it is never below the truth. It works on classes of nodes and of demand: a few
milliseconds for thousands of either. `exact` gives tighter bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.problem import DemandClass, Gang, state_problem
from fleetctl.planner.placement.tally import Ints, Tally


class Bound(NamedTuple):
    """No plan places more than `replicas` new replicas; `method` = the tightest count."""

    replicas: int
    method: str


def upper_bound(demands: Sequence[Demand], ledger: Ledger) -> Bound:
    """Bound the new replicas of all `demands` together on the ledger in its present state (before packing)."""
    return count_bound(Tally(state_problem(demands, ledger)))


def count_bound(tally: Tally) -> Bound:
    """Bound the new replicas of all demands of a problem together."""
    alone = replicas_alone(tally)
    shared = {number: place for place, numbers in enumerate(tally.problem.alternatives) for number in numbers}
    models = {place: tally.problem.demands[numbers[0]].model_missing
              for place, numbers in enumerate(tally.problem.alternatives)}
    free = [_Costs(0, maximum, shared.get(number)) for number, maximum in enumerate(alone)]
    bounds = [Bound(_fitting(free, 0, models), "slots per model")]
    for name, room, costs in _amounts(tally):
        demands = [_Costs(sum(costs[kind] * count for kind, count in demand.members().items()), maximum,
                          shared.get(number))
                   for number, (demand, maximum) in enumerate(zip(tally.problem.demands, alone, strict=True))]
        bounds.append(Bound(_fitting(demands, room, models), name))
    return min(bounds, key=lambda bound: bound.replicas)


def _amounts(tally: Tally) -> Iterator[tuple[str, int, list[int]]]:
    """Yield each amount that adds up over nodes: its name, the total, and what a member of each kind takes of it."""
    claims = [claim for claim, _ in tally.problem.kinds]
    largest = int(tally.cards.memory.max(initial=0))
    yield "free GPU share", tally.total(tally.free_share), [_minimum_share(claim, largest) for claim in claims]
    yield "free CPUs", tally.total(tally.cpus), [claim.cpus for claim in claims]
    yield "free memory", tally.total(tally.memory), [claim.memory for claim in claims]
    for size in sorted({claim.whole_cards for claim in claims} - {0}):
        room = tally.total(tally.whole_cards(0) // size)
        yield f"free groups of {size} whole cards on one node", room, [claim.whole_cards // size for claim in claims]


def _minimum_share(claim: Claim, largest_card: int) -> int:
    return claim.gpus or (-(-claim.vram * SHARE // largest_card) if claim.vram and largest_card > 0 else 0)


class _Costs(NamedTuple):
    """What one replica of a class of demand takes, how many are wanted, and the model whose variant it is, or None."""

    cost: int
    wanted: int
    model: int | None


def _fitting(demands: list[_Costs], room: int, models: Mapping[int, int]) -> int:
    """Return how many replicas fit into `room` if the cheapest go first; `models` = the most of models with variants.

    No other choice of variants gives more, as the limits of variants lie within those of models.
    """
    count, left = 0, dict(models)
    for cost, wanted, model in sorted(demands, key=itemgetter(0)):
        most = wanted if model is None else min(wanted, left[model])
        fitting = most if cost == 0 else min(most, room // cost)
        count += fitting
        room -= fitting * cost
        if model is not None:
            left[model] -= fitting
    return count


def replicas_alone(tally: Tally) -> tuple[int, ...]:
    """Bound the new replicas of each class of demand alone: members per node, distinct nodes, slots."""
    return tuple(_replicas(demand, tally) for demand in tally.problem.demands)


def _replicas(demand: DemandClass, tally: Tally) -> int:
    maximum = demand.missing
    if demand.limit is not None:  # if nodes share no value, a gang touches one value per node
        values = max(-(-gang.size // gang.per_node) for gang in demand.gangs) if demand.limit.per_node else 1
        maximum = min(maximum, sum(demand.limit.left.values()) // values)
    if demand.shape.as_one:
        return min(maximum, sum(replicas_by_domain(demand, maximum, tally).values()))
    for gang in demand.gangs:
        if maximum:
            gangs = sum(gangs_by_domain(demand, gang, maximum * gang.copies, tally).values())
            maximum = min(maximum, int(gangs) // gang.copies)
    return maximum


def replicas_by_domain(demand: DemandClass, wanted: int, tally: Tally) -> dict[str | None, int]:
    """Bound the replicas that fit whole into each domain by itself, at most `wanted`."""
    fitting = [(gang.copies, gangs_by_domain(demand, gang, wanted * gang.copies, tally)) for gang in demand.gangs]
    return {value: min(gangs[value] // copies for copies, gangs in fitting) for value in fitting[0][1]}


def gangs_by_domain(demand: DemandClass, gang: Gang, wanted: int, tally: Tally) -> dict[str | None, int]:
    """Bound the gangs that fit into each domain by itself, at most `wanted`; under None if any node will do."""
    names, domain = _domains(gang, tally)
    maximum = np.full(len(names), wanted, dtype=np.int64)
    slots = tally.slots(demand)
    for kind, count in gang.parts:
        room = tally.max_members(kind).astype(np.int64)
        if slots is not None:
            room = np.minimum(room, slots * count * gang.copies)
        maximum = np.minimum(maximum, _max_gangs(room, count, gang, maximum, domain, tally))
    return dict(zip(names, maximum.tolist(), strict=True))


def _domains(gang: Gang, tally: Tally) -> tuple[list[str | None], Ints]:
    """Return the domains, and for each node class the number of its domain; -1 = in none."""
    label = gang.domain_label
    if not label:
        return [None], np.zeros(len(tally.nodes), dtype=np.int64)
    values = [node.domain(label) for node in tally.problem.nodes]
    names: list[str | None] = [*sorted({value for value in values if value is not None})]
    number = {name: index for index, name in enumerate(names)}
    return names, np.array([-1 if value is None else number[value] for value in values], dtype=np.int64)


def _max_gangs(room: Ints, count: int, gang: Gang, wanted: Ints, domain: Ints, tally: Tally) -> Ints:
    """Return by domain the most gangs g <= wanted with sum(min(room, per_node * g)) >= count * g, by bisection."""
    inside = np.flatnonzero(domain >= 0)
    of, nodes, free = domain[inside], tally.nodes[inside], room[inside]
    low, high = np.zeros_like(wanted), wanted.copy()
    middle = high
    while True:
        members = nodes * np.minimum(free, gang.per_node * middle[of])
        enough = np.bincount(of, weights=members, minlength=len(wanted)) >= count * middle
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
        if np.all(low >= high):
            return low
        middle = (low + high + 1) // 2
