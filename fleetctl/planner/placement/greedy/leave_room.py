"""Leave room: the replicas of a packing are placed again where that costs least what else is expected of the fleet.

How many of each model are placed does not change, and written spreads come first. A packing of the whole fleet is left
alone: there is nothing else to leave room for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fleetctl.planner.placement.demand import Placed
from fleetctl.planner.placement.greedy.greedy import pack_greedily, take_again
from fleetctl.planner.placement.greedy.spread_out import crowding
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.problem import state_problem
from fleetctl.planner.placement.worth.expected import Expected
from fleetctl.planner.placement.worth.room_worth import RoomWorth


def leave_room(placed: list[Placed], ledger: Ledger, expected: Sequence[Expected]) -> list[Placed]:
    """Return the packing, or one of as many replicas of each model that costs the rest less; it is on the ledger then.

    `placed` is not on the ledger; it was made for it as it is.
    """
    worth, opening, mark = RoomWorth(ledger, expected), list(ledger.numbers), ledger.mark()
    counts, demand_of = Counter(one.demand.place for one in placed), {one.demand.place: one.demand for one in placed}
    demands = [replace(demand, missing=counts[place]) for place, demand in demand_of.items()]
    spread = any(demand.shape.spread is not None for demand in demands)

    def cost(packing: Sequence[Placed]) -> tuple[int, int]:
        nodes = {assigned.node for one in packing for assigned in one.assignments}
        crowds = crowding(demands, ledger) if spread else 0
        return crowds, sum(worth.harm(opening[node], ledger.numbers[node], worth.area_of[node]) for node in nodes)

    packed = pack_greedily(state_problem(demands, ledger), Placer(ledger, worth, spread_first=spread))
    anew = [one._replace(demand=demand_of[one.demand.place]) for one in packed]
    found = cost(anew) if len(anew) == len(placed) else None
    ledger.undo(mark)
    take_again(placed, Placer(ledger))
    if found is None or cost(placed) <= found:
        return placed
    ledger.undo(mark)
    take_again(anew, Placer(ledger))
    return anew
