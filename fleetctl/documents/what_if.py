"""What if: a fleet planned on the world as it is and on one that was changed in thought, side by side."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fleetctl.documents.base import FORMAT_VERSION, Stored
from fleetctl.documents.plan import ActionMember, Blocked, Certificate, PlanInventory


class Change(Stored):
    """One thing that was supposed."""

    op: Literal["loseNode", "cordon", "addNode", "scale"]
    about: str = Field(description="as it was typed")
    message: str = Field(description="what it came to")
    nodes: list[str] = Field(default_factory=list)


class Counts(Stored):
    """One model in one plan."""

    wanted: int
    live: int
    create: int
    blocked: int


class ModelChange(Stored):
    """One model before and after; `lost` = live before and not after, `replaced` = how many of these find a new place.

    `surplus` of the lost ones are not needed for the target, and `missing` find no place.
    """

    key: str
    before: Counts
    after: Counts
    lost: int = 0
    replaced: int = 0
    surplus: int = 0
    missing: int = 0


class NewReplica(Stored):
    """A replica the plan would create in the changed world."""

    model: str
    replica_id: int
    members: list[ActionMember]


class LostModel(Stored):
    """What the loss of one node means for one model. `lost` counts the plan's new replicas there as well."""

    model: str
    lost: int
    replaced: int
    surplus: int = Field(0, description="lost, but not needed for the target")
    missing: int = Field(0, description="lost, needed, and there is no place for them")
    code: str | None = None
    message: str = Field("", description="why the first of the nodes' missing ones fit nowhere")


class NodeLoss(Stored):
    """Nodes whose loss, one at a time, comes to the same."""

    hardware: str
    nodes: list[str]
    models: list[LostModel] = Field(default_factory=list)
    unmanaged: int = Field(0, description="replicas that are not this fleet's and would go, too")


class WhatIf(Stored):
    """The answer; nothing of it was done. `before` is today's plan, `after` the plan for the changed world."""

    format_version: str = FORMAT_VERSION
    kind: Literal["WhatIf"] = "WhatIf"
    fleet: str
    inventory: PlanInventory
    changes: list[Change] = Field(default_factory=list)
    before: Counts
    after: Counts
    models: list[ModelChange] = Field(default_factory=list, description="every model, in the order of the fleet file")
    unmanaged_lost: list[str] = Field(
        default_factory=list, description="replicas that are not this fleet's and are on lost nodes"
    )
    created: list[NewReplica] = Field(default_factory=list, description="what the plan would create after the changes")
    blocked: list[Blocked] = Field(default_factory=list, description="what it could not place, and why")
    certificate: Certificate
    each_node: list[NodeLoss] | None = Field(
        None, description="with --each-node: what the loss of each node alone would mean, the gravest first"
    )
    exit_code: int = Field(description="the detailed exit code: 0 nothing to do, 2 changes, 3 something has no place")
