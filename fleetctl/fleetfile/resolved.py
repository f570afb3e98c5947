"""A fleet after loading: files merged, defaults applied, every model with its spec hash and its place in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.documents.fleet import Cluster, NodePolicy, Placement, Policy, Restart, Serving, WorkerGroup
from fleetctl.documents.position import FleetSource, Position
from fleetctl.documents.update import HttpReload


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """One model with defaults merged. `spec_hash` covers what workers and placement mean, but no `weights.from`.

    `former_hash` = the hash that an earlier fleetctl made of them as they are spelled, which replicas may still carry.
    `dedicated` = new replicas take whole cards, whatever share the file gives them.
    `cold` = the labels of the nodes that are to have its weights on their disks; None = none.
    `surge` = how many replicas beyond the target an update may create beside outdated ones; 0 = another mode.
    `reload` = how engines load other weights in place; None = another mode. `engine_hash` = the hash of all but what
    index and view of the weights say; None = it has no weights.
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

    `policy_places` holds the place of each key of `policy` that is set, by its name in the file; `house_rules` the
    files that `policy.schemas` names, in its order.
    """

    name: str
    cluster: Cluster
    policies: tuple[NodePolicy, ...]
    models: tuple[ResolvedModel, ...]
    files: tuple[FleetSource, ...]
    policy: Policy = field(default_factory=Policy)
    policy_places: Mapping[str, Position] = field(default_factory=dict)
    house_rules: tuple[FleetSource, ...] = ()

    @property
    def labels(self) -> dict[str, Mapping[str, str]]:
        """The labels of each model by its key."""
        return {model.key: model.labels for model in self.models}
