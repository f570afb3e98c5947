"""The placement map: every node, its cards, and who holds which share of each. Pictures are made from this alone.

Shares are integers of 1/10000 of a card, memory is in bytes. The pieces of a card and its free share fill it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fleetctl.documents.base import Stored, Versioned
from fleetctl.documents.inventory import NodeState
from fleetctl.documents.plan import PlanInventory
from fleetctl.documents.served_weights import is_absent

Holder = Literal["live", "new", "foreign", "unknown"]


class Piece(Stored):
    """A share of one card, and its holder."""

    holder: Holder = Field(
        description="live = runs; new = the plan would create it; foreign = runs, not this fleet's; "
                    "unknown = granted, but the holder is unknown")
    share: int
    model: str | None = None
    replica: str | None = Field(None, description="model/id, or the actor's own name")
    certain: bool = Field(True, description="false = the card was inferred from Ray's rule, not reported")


class MapCard(Stored):
    """One card of a node."""

    index: int
    hardware: str | None = Field(None, description="the card's model, where it is known")
    memory: int | None = None
    free_share: int = 0
    dirty: bool = Field(False, description="more of it is used than is granted: not offered")
    pieces: list[Piece] = Field(default_factory=list)


class Beside(Stored):
    """A replica's member on a node that holds no card there."""

    holder: Holder
    model: str
    replica: str
    warm: int | None = Field(None, exclude_if=is_absent, description="of a WARM one: bytes of its weights in memory")


class MapNode(Stored):
    """One node. `cordonedBy` names the policy that keeps new replicas away."""

    id: str
    name: str
    hardware: str
    state: NodeState
    new: bool = Field(False, description="it does not exist yet: Ray's autoscaler would be asked for it")
    cordoned_by: str | None = None
    cards: list[MapCard] = Field(default_factory=list)
    beside: list[Beside] = Field(default_factory=list)


class LegendEntry(Stored):
    """One model on the map."""

    model: str
    live: int = Field(0, description="managed replicas that run")
    new: int = Field(0, description="replicas the plan would create")
    foreign: int = Field(0, description="running replicas of another fleet, or of none")


class PlacementMap(Versioned):
    """Which replicas are where, and with a fleet also which ones the plan would add."""

    kind: Literal["PlacementMap"] = "PlacementMap"
    fleet: str | None = None
    inventory: PlanInventory
    legend: list[LegendEntry] = Field(default_factory=list, description="by what they hold, the largest first")
    nodes: list[MapNode] = Field(default_factory=list, description="by name")
