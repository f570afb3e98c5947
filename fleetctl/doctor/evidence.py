"""What the checks look at, and what a check is. All of it was read before: a check reads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from fleetctl.documents.diagnosis import Area, Diagnosed, ExaminedNode, LeftLock
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.vitals import Vitals

Basis = Literal["nothing", "cluster", "whole cluster", "nodes", "fleet", "fleet and nodes"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """`now` is RFC 3339. `refusal` = why the cluster could not be read; then there is no `seen`.

    `nodes` = what the agent found on each node, by id; None = it was not asked, or could not be: `unasked` says why.
    """

    now: str
    loaded: LoadedFleet | None = None
    refusal: FleetctlError | None = None
    seen: Inventory | None = None
    vitals: Vitals = field(default_factory=Vitals)
    nodes: Mapping[str, ExaminedNode] | None = None
    locks: Sequence[LeftLock] = ()
    unasked: FleetctlError | None = None

    @property
    def inventory(self) -> Inventory:
        """The inventory, for checks that are made only where there is one."""
        return cast("Inventory", self.seen)

    @property
    def fleet(self) -> ResolvedFleet | None:
        """The fleet, where one was given and its files have no error."""
        return self.loaded.fleet if self.loaded else None

    @property
    def alive(self) -> list[Node]:
        """The nodes that are not dead."""
        return [node for node in self.inventory.nodes if node.state != "DEAD"]

    def lacks(self, basis: Basis) -> str | None:
        """Return why a check on this basis cannot be made; None where it can."""
        if basis not in ("nothing", "fleet") and self.seen is None:
            return "the cluster could not be read"
        if basis == "whole cluster" and not self.inventory.complete:
            return "the cluster could not be read whole"
        if basis.startswith("fleet") and self.loaded is None:
            return "no fleet file was given; -f FLEET names one"
        if basis == "fleet and nodes" and self.fleet is None:
            return "the fleet files have errors"
        if basis.endswith("nodes") and self.nodes is None:
            return "the nodes could not be asked" if self.unasked else "the nodes were not asked; --nodes asks them"
        return None


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `name` is what is so where it finds nothing; `basis` = what it needs."""

    name: str
    area: Area
    basis: Basis
    run: Callable[[Evidence], Iterable[Diagnosed]]
