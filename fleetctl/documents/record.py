"""What an apply leaves in its log about what it creates or reloads, for `import`, and while it starts: no secret.

The agent writes it as the event `planAccepted`, before it creates anything.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from fleetctl.documents.base import Stored, Versioned
from fleetctl.documents.inventory import ReplicaMember
from fleetctl.documents.position import FleetSource


class Lifecycle(Stored):
    """How the replica is started and restarted; not part of the spec hash. Seconds."""

    startup_timeout: float
    scheduling_timeout: float
    restart_max: int
    restart_backoff: float


class RecordedModel(Stored):
    """A model of which the apply creates or reloads replicas, with what its spec hash does not cover."""

    key: str
    spec_hash: str
    wanted: int
    priority: int = 0
    lifecycle: Lifecycle


class RecordedReplica(Stored):
    """A replica that the apply creates, and where: until it is up, no other source has this."""

    model: str
    replica_id: int
    spec_hash: str
    members: list[ReplicaMember] = Field(default_factory=list)


class ApplyRecord(Versioned):
    """The models acted on and their shapes, and every replica."""

    files: list[FleetSource] = Field(default_factory=list, description="what the fleet was read from")
    models: list[RecordedModel] = Field(default_factory=list)
    shapes: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="by spec hash: workers and placement as the user set them, env values masked")
    replicas: list[RecordedReplica] = Field(default_factory=list)
