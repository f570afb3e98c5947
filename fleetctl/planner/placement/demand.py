"""What is asked of the packer, and what it answers: demands of models, and replicas with a place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.ledger.replica import Assigned, SeatNodes


@dataclass(frozen=True, slots=True)
class Demand:
    """What one model asks for: `missing` new replicas. `place` is its place in the fleet file."""

    shape: ReplicaShape
    missing: int
    live: int
    priority: int
    place: int


class Placed(NamedTuple):
    """One new replica and where its members are."""

    demand: Demand
    assignments: tuple[Assigned, ...]

    @property
    def gpus(self) -> int:
        """GPU share that it takes, in 1/10000."""
        return sum(assigned.gpus for assigned in self.assignments)

    @property
    def nodes(self) -> set[int]:
        """The nodes it touches."""
        return {assigned.node for assigned in self.assignments}

    @property
    def seats(self) -> SeatNodes:
        """The node of each of its members."""
        return {assigned.seat.position: assigned.node for assigned in self.assignments}
