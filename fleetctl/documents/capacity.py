"""Capacity: how many more replicas would fit, where, and what prevents one more. Rows share the same free capacity.

`now` counts beside what runs; `afterPlan` also beside the plan's new replicas; `withNewNodes` is the same with all
nodes that the autoscaler may add.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fleetctl.documents.base import Stored, Versioned
from fleetctl.documents.plan import PlanInventory


class EqualNodes(Stored):
    """Nodes of one kind that take equally many members."""

    hardware: str = Field(description="the kind of node, such as 8xH200")
    members_each: int = Field(description="members of new replicas on each node")
    nodes: list[str] = Field(description="names of the nodes")


class Room(Stored):
    """How many more replicas fit, an upper bound, and what prevents one more."""

    fits: int
    at_most: int = Field(description="no placement holds more replicas than this")
    status: Literal["optimal", "feasible"] = Field(description="optimal = proven: no placement fits more")
    method: str = Field(description="the argument behind atMost")
    capped: bool = Field(False, description="counting stopped at the limit; more may fit")
    code: str | None = Field(None, description="what prevents one more; null if counting stopped at the limit")
    message: str = Field("", description="the same with the arithmetic: need, best, short")
    where: list[EqualNodes] = Field(default_factory=list)


class CapacityRow(Stored):
    """One model of the fleet, or one shape from the command line."""

    model: str | None = None
    shape: str | None = Field(None, description="as the user wrote it")
    need: str = Field(description="what one replica claims")
    create: int | None = Field(None, description="replicas the plan creates; null without a fleet")
    blocked: int | None = Field(None, description="replicas the plan cannot place; null without a fleet")
    now: Room
    after_plan: Room | None = Field(None, description="null without a fleet")
    with_new_nodes: Room | None = Field(
        None, description="with every node that spec.cluster.grow may add, beside the plan and the replicas that wait "
                          "for such nodes; null without spec.cluster.grow")


class Capacity(Versioned):
    """How many more replicas of each model or shape fit."""

    kind: Literal["Capacity"] = "Capacity"
    fleet: str | None = None
    inventory: PlanInventory
    limit: int = Field(description="counting stops here")
    rows: list[CapacityRow]
