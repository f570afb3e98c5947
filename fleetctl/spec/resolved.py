"""A fleet after loading: files merged, defaults applied, every model with its spec hash and its place in a file."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.documents.fleet import Cluster, NodePolicy, Placement, Restart, WorkerGroup
from fleetctl.documents.plan import FleetSource, Position


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """One model as it holds after merging defaults. `spec_hash` covers workers and placement as the user set them."""

    key: str
    replicas: int
    priority: int
    startup_timeout_s: float
    scheduling_timeout_s: float
    restart: Restart
    placement: Placement
    workers: tuple[WorkerGroup, ...]
    spec_hash: str
    source: Position


@dataclass(frozen=True, slots=True)
class ResolvedFleet:
    """One fleet, from all its files; models and policies in argument order, then file order."""

    name: str
    cluster: Cluster
    policies: tuple[NodePolicy, ...]
    models: tuple[ResolvedModel, ...]
    files: tuple[FleetSource, ...]
