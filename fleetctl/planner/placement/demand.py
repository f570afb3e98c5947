"""The packer's input and output: the demands of models, and replicas with their nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.ledger.replica import Assigned, SeatNodes


@dataclass(frozen=True, slots=True)
class Demand:
    """One model's demand for `missing` new replicas; `place` = the index of the model in the fleet file."""

    shape: ReplicaShape
    missing: int
    live: int
    priority: int
    place: int


class Placed(NamedTuple):
    """One new replica and the nodes of its members."""

    demand: Demand
    assignments: tuple[Assigned, ...]

    @property
    def gpus(self) -> int:
        """The GPU share it takes, in 1/10000."""
        return sum(assigned.gpus for assigned in self.assignments)

    @property
    def nodes(self) -> set[int]:
        """The nodes it touches."""
        return {assigned.node for assigned in self.assignments}

    @property
    def seats(self) -> SeatNodes:
        """The node of each of its members."""
        return {assigned.seat.position: assigned.node for assigned in self.assignments}
