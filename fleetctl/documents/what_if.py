"""What if: today's plan compared with the plan after hypothetical changes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fleetctl.documents.base import Stored, Versioned
from fleetctl.documents.plan import ActionMember, Blocked, Certificate, Growth, PlanInventory


class Change(Stored):
    """One hypothetical change."""

    op: Literal["loseNode", "cordon", "addNode", "scale"]
    about: str = Field(description="as the user wrote it")
    message: str = Field(description="its effect in words")
    nodes: list[str] = Field(default_factory=list)


class Counts(Stored):
    """The counts of one model in one plan, or of all."""

    wanted: int
    live: int
    create: int
    blocked: int
    on_new_nodes: int = Field(0, description="of the blocked ones: would run on nodes that may be added")


class ModelChange(Stored):
    """One model before and after. `lost` = live before but not after.

    Of these, `replaced` get a new place, `surplus` are not needed for the target, and `missing` fit nowhere.
    """

    key: str
    before: Counts
    after: Counts
    lost: int = 0
    replaced: int = 0
    surplus: int = 0
    missing: int = 0


class NewReplica(Stored):
    """A replica that the plan after the changes would create."""

    model: str
    replica_id: int
    members: list[ActionMember]


class LostModel(Stored):
    """The effect of losing one node on one model. `lost` includes the plan's new replicas there."""

    model: str
    lost: int
    replaced: int
    surplus: int = Field(0, description="lost, but not needed for the target")
    missing: int = Field(0, description="lost, needed, and without a new place")
    on_new_nodes: int = Field(0, description="of the missing ones: would run on nodes that may be added")
    code: str | None = None
    message: str = Field("", description="why a missing replica fits nowhere, for the first of these nodes")


class NodeLoss(Stored):
    """Nodes whose loss, one at a time, has the same effect."""

    hardware: str
    nodes: list[str]
    models: list[LostModel] = Field(default_factory=list)
    unmanaged: int = Field(0, description="lost replicas that are not this fleet's")


class WhatIf(Versioned):
    """The comparison; nothing was changed. `before` counts today's plan, `after` the plan after the changes."""

    kind: Literal["WhatIf"] = "WhatIf"
    fleet: str
    inventory: PlanInventory
    changes: list[Change] = Field(default_factory=list)
    before: Counts
    after: Counts
    models: list[ModelChange] = Field(default_factory=list, description="every model, in the order of the fleet file")
    unmanaged_lost: list[str] = Field(
        default_factory=list, description="replicas on lost nodes that are not this fleet's")
    created: list[NewReplica] = Field(default_factory=list, description="what the plan would create after the changes")
    blocked: list[Blocked] = Field(default_factory=list, description="replicas without a place, and why")
    growth: list[Growth] = Field(default_factory=list, description="after: the node types that may be added")
    certificate: Certificate
    each_node: list[NodeLoss] | None = Field(
        None, description="with --each-node: the effect of losing each node, worst first")
    exit_code: int = Field(description="the detailed exit code: 0 nothing to do, 2 changes, 3 replicas without a place")
