"""What changed in meaning between two revisions of a fleet, and what that would do to what runs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from fleetctl.documents.base import FORMAT_VERSION, Stored
from fleetctl.documents.position import Position

Effect = Literal["additive", "none", "drift", "held"]
"""additive = more may be created; none = nothing that runs is touched; drift = what runs keeps the old spec;
held = a lowered target or a model taken out: nothing is removed."""


class Difference(Stored):
    """One value that is not what it was. Values of engine environments are masked."""

    model: str | None = Field(None, description="the model it is about; null = the fleet as a whole")
    path: str = Field(description="below the model or the fleet, such as workers.main.members[0].engine.args")
    kind: Literal["added", "removed", "changed"]
    effect: Effect
    old: Any = None
    new: Any = None
    old_source: Position | None = None
    new_source: Position | None = None
    message: str = Field(description="one sentence: what it does to what runs")


class Revision(Stored):
    """One side of a comparison."""

    name: str = Field(description="as it was asked for: a git revision, a file, or the working tree")
    commit: str | None = None
    files: list[str] = Field(default_factory=list)


class FleetDiff(Stored):
    """All differences between two revisions of one fleet, in the order of the newer file."""

    format_version: str = FORMAT_VERSION
    kind: Literal["FleetDiff"] = "FleetDiff"
    fleet: str
    base: Revision
    head: Revision
    summary: dict[Effect, int] = Field(description="how many differences there are of each effect")
    differences: list[Difference] = Field(default_factory=list)


class CountsThen(Stored):
    """What a plan says about one model."""

    wanted: int
    create: int
    blocked: int


class ModelEffect(Stored):
    """What the change does to one model: the plan of the base beside the plan of the head, on the same inventory."""

    key: str
    kind: Literal["added", "removed", "changed", "sideEffect"] = Field(
        description="sideEffect = its own text is as it was, but another model's change alters what it gets"
    )
    before: CountsThen | None = Field(None, description="null = not in the base")
    after: CountsThen | None = Field(None, description="null = not in the head")
    message: str


class PlanChange(Stored):
    """What a change of the fleet files causes alone, beside what would be done without it, too."""

    base: Revision
    create: int = Field(description="replicas to create that the base would not create")
    blocked: int = Field(description="blocked replicas beyond those of the base; negative = fewer")
    also_without: int = Field(description="replicas to create that the base would create as well")
    differences: list[Difference] = Field(default_factory=list)
    models: list[ModelEffect] = Field(default_factory=list, description="only those that get something else")
