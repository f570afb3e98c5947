"""Events of an apply, one JSON object per line: the agent writes them, the client shows and relays them.

The first is `version`, the last `runSummary`. Readers must show `message` of a type they do not know.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from fleetctl.documents.base import Stored
from fleetctl.documents.inventory import Level as ReplicaLevel
from fleetctl.documents.served_weights import GotWeights, is_absent, is_zero

Level = Literal["debug", "info", "warning", "error"]
Outcome = Literal["ready", "gone", "starting", "failed", "blocked", "skipped"]
"""gone = an explicit verb ended it, as requested."""


class Event(Stored):
    """One line. Further keys depend on the type, and are kept."""

    model_config = ConfigDict(extra="allow")

    seq: int
    time: str = Field(description="RFC 3339, UTC")
    type: str
    level: Level = "info"
    message: str


class ReplicaOutcome(Stored):
    """The result for one replica; `code` and `message` say why it is not ready."""

    model: str
    replica_id: int | None = None
    outcome: Outcome
    nodes: list[str] = Field(default_factory=list)
    address: str | None = None
    addresses: list[str] = Field(
        default_factory=list, exclude_if=is_zero,
        description="of every serving member, if there are several; the first is `address`")
    code: str | None = None
    message: str = ""
    seconds: float | None = None
    level: ReplicaLevel | None = Field(
        None, exclude_if=is_absent,
        description="the level it was taken to, if it is gone; HOT = it was promoted; COLD without a replicaId = "
                    "weights that nodes keep on their disks")
    replicas: int = Field(1, description="the number of replicas in this row; more than one only if blocked")
    weights: GotWeights | None = Field(
        None, exclude_if=is_absent, description="how its members got their weights, all together")
    notes: list[str] = Field(
        default_factory=list, exclude_if=is_zero, description="problems that did not affect the outcome")


class RunSummary(Event):
    """The last line of an apply."""

    type: Literal["runSummary"] = "runSummary"
    outcomes: list[ReplicaOutcome] = Field(default_factory=list)
    exit_code: int
    interrupted: bool = False
    waited: bool = Field(True, description="false = --no-wait: created replicas were not waited for")
