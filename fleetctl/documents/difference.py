"""What changed in meaning between two revisions of a fleet, and how that affects running replicas."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from fleetctl.documents.base import Stored, Versioned
from fleetctl.documents.position import Position
from fleetctl.documents.weights import is_absent, is_zero

Effect = Literal["additive", "none", "drift", "held"]
"""additive = more replicas may be created; none = no running replica is affected; drift = running replicas keep the
old spec; held = a lowered target or a removed model: no replica is removed."""


class Difference(Stored):
    """One value that changed. Values of engine environments are masked."""

    model: str | None = Field(None, description="the model it is about; null = the fleet as a whole")
    path: str = Field(
        description="relative to the model or fleet, such as workers.main.members[0].engine.args; empty = whole model")
    kind: Literal["added", "removed", "changed"]
    effect: Effect
    old: Any = Field(None, description="the value in the file, else its default; null = not set")
    new: Any = Field(None, description="the value in the file, else its default; null = not set")
    old_source: Position | None = Field(None, description="the value, or the nearest key around a missing one")
    new_source: Position | None = Field(None, description="the value, or the nearest key around a missing one")
    message: str = Field(description="one sentence: how it affects running replicas")


class Revision(Stored):
    """One side of a comparison."""

    name: str = Field(description="as the user named it: a git revision, a file, or the working tree")
    commit: str | None = None
    files: list[str] = Field(default_factory=list)


class FleetSize(Stored):
    """The total a fleet file asks for."""

    models: int = 0
    replicas: int = 0
    gpus: int = Field(0, description="1/10000 GPU, of all replicas together; claims of vram alone are not included")


class FleetDiff(Versioned):
    """All differences between two revisions of one fleet, in the order of the newer file."""

    kind: Literal["FleetDiff"] = "FleetDiff"
    fleet: str
    base: Revision
    head: Revision
    before: FleetSize = Field(description="what the base asks for")
    after: FleetSize = Field(description="what the head asks for")
    summary: dict[Effect, int] = Field(description="the number of differences with each effect")
    differences: list[Difference] = Field(default_factory=list)
    exit_code: int = Field(description="0 = no difference in meaning, 2 = differences; the process's own code with "
                                       "--detailed-exitcode")


class CountsThen(Stored):
    """The counts of one model in a plan."""

    wanted: int
    create: int = Field(description="those that follow a pilot included")
    blocked: int
    hold: int = Field(0, description="live replicas beyond the target, kept")
    drift: int = Field(0, description="live replicas that differ from the file")
    fetch: int = Field(0, exclude_if=is_zero, description="nodes that fetch its weights to keep them on disk")
    variants: dict[str, int] = Field(
        default_factory=dict, exclude_if=is_zero, description="of those to create: how many of each variant, by its "
                                                              "name; of a model with variants")


class ModelEffect(Stored):
    """What the change does to one model: its counts in the plans of base and head, on the same inventory."""

    key: str
    kind: Literal["added", "removed", "changed", "sideEffect"] = Field(
        description="sideEffect = its own text did not change, but another model's change alters its placement")
    before: CountsThen | None = Field(None, description="null = not in the base")
    after: CountsThen | None = Field(None, description="null = not in the head")
    message: str


class PlanChange(Stored):
    """The effect of a change of the fleet files alone, apart from what the plan would do without it."""

    base: Revision
    create: int = Field(description="replicas to create that the base would not create")
    blocked: int = Field(description="blocked replicas beyond those of the base; negative = fewer")
    also_without: int = Field(description="replicas to create that the base would create as well")
    other_variant: int = Field(
        0, exclude_if=is_zero, description="of alsoWithout: as another variant of the model than the base would create")
    no_longer: int = Field(0, description="replicas the base would create and this plan does not")
    drift: int = Field(0, description="live replicas that match the file of the base, but not this one")
    adds: int | None = Field(
        None, exclude_if=is_absent, description="of the plan's price: what it adds an hour beyond what the base would "
                                                "add, at the prices of this file; absent = it has none")
    differences: list[Difference] = Field(default_factory=list)
    models: list[ModelEffect] = Field(
        default_factory=list, description="the models that changed or are affected by the change")
