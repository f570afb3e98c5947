"""A loaded fleet: files merged, defaults applied, every model with its spec hash and its place in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.documents.fleet import (
    Cluster,
    History,
    HttpReload,
    NodePolicy,
    Placement,
    Policy,
    Restart,
    Serving,
    WorkerGroup,
)
from fleetctl.documents.position import FleetSource, Position


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """One model with defaults merged. `spec_hash` covers the meaning of workers and placement, except `weights.from`.

    `former_hash` = the hash that earlier versions of fleetctl made of their spelling; live replicas may still carry it.
    `dedicated` = new replicas take whole cards, even if the file claims a share.
    `cold` = the labels of the nodes that keep its weights on disk; None = no node does.
    `surge` = the number of replicas beyond the target that an update may create beside outdated ones; 0 = another mode.
    `reload` = the request that makes engines load other weights in place; None = another mode.
    `engine_hash` = the hash of everything except index and view of the weights; None = no weights.
    """

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
    serving: Serving = field(default_factory=Serving)
    labels: Mapping[str, str] = field(default_factory=dict)
    former_hash: str = ""
    surge: int = 0
    reload: HttpReload | None = None
    engine_hash: str | None = None
    dedicated: bool = False
    cold: Mapping[str, str] | None = None

    def has_spec(self, spec_hash: str | None) -> bool:
        """Return whether a replica with this hash was started with the spec of this model."""
        return spec_hash in (self.spec_hash, self.former_hash)


@dataclass(frozen=True, slots=True)
class ResolvedFleet:
    """One fleet, from all its files; models and node policies in argument order, then file order.

    `policy_places` = the place of each key set in `policy`, by its name in the file; `house_rules` = the files named
    by `policy.schemas`, in order. `history` is None if no file sets it.
    """

    name: str
    cluster: Cluster
    policies: tuple[NodePolicy, ...]
    models: tuple[ResolvedModel, ...]
    files: tuple[FleetSource, ...]
    policy: Policy = field(default_factory=Policy)
    policy_places: Mapping[str, Position] = field(default_factory=dict)
    house_rules: tuple[FleetSource, ...] = ()
    history: History | None = None

    @property
    def labels(self) -> dict[str, Mapping[str, str]]:
        """The labels of each model, by model key."""
        return {model.key: model.labels for model in self.models}
