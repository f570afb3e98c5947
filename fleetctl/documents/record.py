"""The record of the replicas that an apply creates or reloads, without secrets.

The agent writes it to its log as the event `planAccepted` before it creates anything. `import` reads it, and the
inventory does for replicas that are still starting.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from fleetctl.documents.base import Stored, Versioned
from fleetctl.documents.fleet import Lifecycle
from fleetctl.documents.inventory import ReplicaMember
from fleetctl.documents.position import FleetSource
from fleetctl.documents.weights import is_absent


class RecordedModel(Stored):
    """A model of which the apply creates or reloads replicas, and the settings that its spec hash does not cover."""

    key: str
    spec_hash: str
    wanted: int
    priority: int = 0
    lifecycle: Lifecycle


class RecordedReplica(Stored):
    """A replica that the apply creates, and its nodes: until it is ready, no other source has them."""

    model: str
    replica_id: int
    variant: str | None = Field(None, exclude_if=is_absent, description="the variant of its model, if that has any")
    spec_hash: str
    members: list[ReplicaMember] = Field(default_factory=list)


class ApplyRecord(Versioned):
    """The models acted on with their shapes, and every replica."""

    files: list[FleetSource] = Field(default_factory=list, description="the files that the fleet was read from")
    models: list[RecordedModel] = Field(default_factory=list)
    shapes: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="by spec hash: workers and placement as the user set them, env values masked")
    replicas: list[RecordedReplica] = Field(default_factory=list)
