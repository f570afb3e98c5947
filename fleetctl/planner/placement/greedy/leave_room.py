"""Leave room: the replicas of a small plan go where that costs least what else is expected of the fleet.

How many of each model are placed does not change, and written spreads come first. A packing of the whole fleet is left
alone: there is nothing else to leave room for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.greedy.greedy import pack_greedily, take_again
from fleetctl.planner.placement.greedy.spread_out import crowding
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.problem import state_demand
from fleetctl.planner.placement.worth.room_worth import RoomWorth


def place_for_the_rest(demands: Sequence[Demand], ledger: Ledger, worth: RoomWorth) -> list[Placed]:
    """Place as much as goes in one pass, each member where that costs the rest least; the result stays taken."""
    return pack_greedily(state_demand(demands, ledger), Placer(ledger, worth, spread_first=True))


def leave_room(placed: list[Placed], mark: int, ledger: Ledger, worth: RoomWorth) -> list[Placed]:
    """Return as many replicas of each model where that costs the rest least, or the packing; it is on the ledger then.

    `placed` is on the ledger, since `mark`.
    """
    counts, demand_of = Counter(one.demand.place for one in placed), {one.demand.place: one.demand for one in placed}
    crowded = crowding(demand_of.values(), ledger)
    ledger.undo(mark)
    demands = [replace(demand, missing=counts[place]) for place, demand in demand_of.items()]
    again = place_for_the_rest(demands, ledger, worth)
    if len(again) == len(placed) and crowding(demands, ledger) <= crowded:
        return [one._replace(demand=demand_of[one.demand.place]) for one in again]
    ledger.undo(mark)
    take_again(placed, Placer(ledger))
    return placed
