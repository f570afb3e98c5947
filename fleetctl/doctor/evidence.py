"""The evidence that the checks judge. Checks do no I/O: all evidence is read beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from fleetctl.documents.diagnosis import ExaminedNode, LeftLock
from fleetctl.documents.inventory import Inventory, Node
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.load import LoadedFleet
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.inventory.vitals import Vitals
from fleetctl.planner.options import file_flags

Basis = Literal["nothing", "cluster", "whole cluster", "nodes", "fleet", "fleet and cluster", "fleet and nodes"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """`now` = the cluster's time, RFC 3339, and `ahead_s` = this machine's clock less it; None = it was not told.

    `seen` = the inventory; None if the cluster could not be read, because of `refusal`.

    `nodes` = the agent's findings by node id; None if it did not examine the nodes, or could not because of `unasked`.
    `autoscaler` = what the agent found wrong with Ray's autoscaler, "" = nothing.
    """

    now: str
    loaded: LoadedFleet | None = None
    refusal: FleetctlError | None = None
    seen: Inventory | None = None
    vitals: Vitals = field(default_factory=Vitals)
    nodes: Mapping[str, ExaminedNode] | None = None
    locks: Sequence[LeftLock] = ()
    autoscaler: str = ""
    unasked: FleetctlError | None = None
    ahead_s: float | None = None

    @property
    def inventory(self) -> Inventory:
        """The inventory, for checks that run only if there is one."""
        return cast("Inventory", self.seen)

    @property
    def fleet(self) -> ResolvedFleet | None:
        """The fleet; None if none was given or its files have errors."""
        return self.loaded.fleet if self.loaded else None

    @property
    def prune_runs(self) -> str:
        """The command that deletes runs which the history of the fleet does not keep."""
        files = [document.source.file for document in self.loaded.documents] if self.loaded else []
        return f"fleetctl prune {file_flags(list(dict.fromkeys(files)))} --runs"

    @property
    def alive(self) -> list[Node]:
        """The nodes that are not dead."""
        return [node for node in self.inventory.nodes if node.state != "DEAD"]

    def lacks(self, basis: Basis) -> str | None:
        """Return why a check with this basis cannot run; None if it can."""
        if basis not in ("nothing", "fleet") and self.seen is None:
            return "the cluster could not be read"
        if basis == "whole cluster" and not self.inventory.complete:
            return "the cluster could not be read completely"
        if basis.startswith("fleet") and self.loaded is None:
            return "no fleet file was given; name one with -f FLEET"
        if basis.startswith("fleet and") and self.fleet is None:
            return "the fleet files have errors"
        if basis.endswith("nodes") and self.nodes is None:
            return "the nodes could not be examined" if self.unasked else "add --nodes to examine the nodes"
        return None
