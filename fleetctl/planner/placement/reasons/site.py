"""What a plan was made on, as far as remedies need it: nodes as documents, policies, and who stands where.

The ledger knows what is left; to say what would be left without somebody, or on a node that does not exist yet, one has
to begin at the inventory again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.inventory import Node, ReplicaMember
from fleetctl.planner.placement.ledger.replica import Stand


class Occupant(NamedTuple):
    """One replica that holds something: `live` members (it runs) or `planned` members, by place of the node."""

    model: str
    replica_id: int | None
    foreign_id: str | None
    fleet: str | None
    priority: int | None
    """Of its model, where that is in the fleet file; None otherwise."""
    ours: bool
    """Of this fleet, also where its file does not have the model any more."""
    wanted: bool
    """False = ours, but beyond the target of its model or not in the file."""
    live: Mapping[int, tuple[ReplicaMember, ...]]
    planned: Mapping[int, tuple[Stand, ...]]

    @property
    def name(self) -> str:
        """Its name in a plan, or the actor's own where it is not in our scheme."""
        return self.foreign_id or self.model if self.replica_id is None else f"{self.model}/{self.replica_id}"

    def holds(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield for each member its node, GPU share, CPUs and memory."""
        for place, members in self.live.items():
            for member in members:
                yield place, member.gpus, member.cpus, member.memory
        for place, stands in self.planned.items():
            for stand in stands:
                yield place, stand.gpus, stand.seat.claim.cpus, stand.seat.claim.memory

    def units(self, place: int) -> int:
        """Return the GPU share it holds on one node, in 1/10000."""
        return sum(member.gpus for member in self.live.get(place, ())) + sum(
            stand.gpus for stand in self.planned.get(place, ()))


@dataclass(frozen=True, slots=True)
class Site:
    """`nodes` in ledger order; `occupants`: who runs first, in a fixed order, then who is planned, as created."""

    nodes: Sequence[Node]
    policies: Sequence[NodePolicy]
    occupants: Sequence[Occupant]
