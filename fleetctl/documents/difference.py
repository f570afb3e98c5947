"""What changed in meaning between two revisions of a fleet, and what that would do to what runs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from fleetctl.documents.base import Stored, Versioned
from fleetctl.documents.position import Position
from fleetctl.documents.served_weights import is_zero

Effect = Literal["additive", "none", "drift", "held"]
"""additive = more may be created; none = nothing that runs is touched; drift = what runs keeps the old spec;
held = a lowered target or a removed model: no replica is removed."""


class Difference(Stored):
    """One value that is not what it was. Values of engine environments are masked."""

    model: str | None = Field(None, description="the model it is about; null = the fleet as a whole")
    path: str = Field(
        description="below the model or the fleet, such as workers.main.members[0].engine.args; empty = the whole model"
    )
    kind: Literal["added", "removed", "changed"]
    effect: Effect
    old: Any = Field(None, description="as the file has it, a default where it has none; null = not set")
    new: Any = Field(None, description="as the file has it, a default where it has none; null = not set")
    old_source: Position | None = Field(None, description="the value, or the nearest key around where it would be")
    new_source: Position | None = Field(None, description="the value, or the nearest key around where it would be")
    message: str = Field(description="one sentence: what it does to what runs")


class Revision(Stored):
    """One side of a comparison."""

    name: str = Field(description="as the user named it: a git revision, a file, or the working tree")
    commit: str | None = None
    files: list[str] = Field(default_factory=list)


class FleetSize(Stored):
    """How much a fleet file asks for."""

    models: int = 0
    replicas: int = 0
    gpus: int = Field(0, description="1/10000 GPU, of all replicas together; memory of cards asked for is not in it")


class FleetDiff(Versioned):
    """All differences between two revisions of one fleet, in the order of the newer file."""

    kind: Literal["FleetDiff"] = "FleetDiff"
    fleet: str
    base: Revision
    head: Revision
    before: FleetSize = Field(description="what the base asks for")
    after: FleetSize = Field(description="what the head asks for")
    summary: dict[Effect, int] = Field(description="how many differences there are of each effect")
    differences: list[Difference] = Field(default_factory=list)
    exit_code: int = Field(description="0 = no difference in meaning, 2 = differences; the process's own code with "
                                       "--detailed-exitcode")


class CountsThen(Stored):
    """What a plan says about one model."""

    wanted: int
    create: int
    blocked: int
    hold: int = Field(0, description="live replicas beyond the target, kept")
    drift: int = Field(0, description="live replicas that are not as the file says")
    fetch: int = Field(0, exclude_if=is_zero, description="nodes that fetch its weights to keep them")


class ModelEffect(Stored):
    """What the change does to one model: the plan of the base beside the plan of the head, on the same inventory."""

    key: str
    kind: Literal["added", "removed", "changed", "sideEffect"] = Field(
        description="sideEffect = its own text is as it was, but another model's change alters what it gets")
    before: CountsThen | None = Field(None, description="null = not in the base")
    after: CountsThen | None = Field(None, description="null = not in the head")
    message: str


class PlanChange(Stored):
    """What a change of the fleet files causes alone, beside what would be done without it, too."""

    base: Revision
    create: int = Field(description="replicas to create that the base would not create")
    blocked: int = Field(description="blocked replicas beyond those of the base; negative = fewer")
    also_without: int = Field(description="replicas to create that the base would create as well")
    no_longer: int = Field(0, description="replicas the base would create and this plan does not")
    drift: int = Field(0, description="live replicas that are not as the file says any more, and were before")
    differences: list[Difference] = Field(default_factory=list)
    models: list[ModelEffect] = Field(default_factory=list, description="those that changed or get something else")
