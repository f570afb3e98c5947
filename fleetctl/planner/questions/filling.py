"""Fill a ledger with replicas of one shape until no more fits.

Where a replica is one member and its share is the same on every card, this is exact: Ray decides the card, so a node
takes what it takes, whatever the order, and nodes meddle with each other only by the limit of a spread, which each of
its values has for itself. Everything else goes to the packer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.exact.bound import upper_bound
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.pack import pack


@dataclass(frozen=True, slots=True)
class Filled:
    """How many replicas were taken, how many could have been at most, and how many members stand on which node."""

    replicas: int
    at_most: int
    method: str
    members: dict[int, int]


def fill(shape: ReplicaShape, ledger: Ledger, limit: int) -> Filled:
    """Take as many replicas of `shape` as fit, at most `limit`; they stay taken."""
    if _is_single(shape):
        return _fill_singly(shape, ledger, limit)
    demand = Demand(shape, limit, 1, 0, 0)
    bound = upper_bound([demand], ledger)
    asked = Demand(shape, min(limit, bound.replicas), 1, 0, 0)
    placed = pack([asked], Placer(ledger)).placed
    members = Counter(stand.node for one in placed for stand in one.stands)
    return Filled(len(placed), min(limit, bound.replicas), bound.method, dict(members))


def _is_single(shape: ReplicaShape) -> bool:
    claims = [member.claim for group in shape.groups for member in group.members]
    return shape.size == 1 and bool(claims[0].gpus or not claims[0].vram)


def _fill_singly(shape: ReplicaShape, ledger: Ledger, limit: int) -> Filled:
    (seat,) = shape.seats
    members: dict[int, int] = {}
    left = limit
    allowed = Placer(ledger).allowed(shape)
    for node in ledger.selected(seat.selector):
        count = 0
        while count < left and (allowed is None or allowed(node)) and ledger.take(node, seat.claim) is not None:
            count += 1
            if allowed is not None:  # where there is no cap, nobody asks for slots
                ledger.take_slots(shape.key, (node,))
        if count:
            members[node] = count
            left -= count
    return Filled(limit - left, limit - left, "each node counted by itself", members)
