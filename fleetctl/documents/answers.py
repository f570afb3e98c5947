"""Answers about a fleet: capacity, what if, the placement map, all its files as one document, where it is served now,
and what `prefetch` and `prune` did with weights on the disks of nodes.

Shares are integers of 1/10000 of a card, memory is in bytes. Rows of a capacity share the same free capacity: `now`
counts beside what runs; `afterPlan` also beside the plan's new replicas; `withNewNodes` is the same with all nodes that
the autoscaler may add. Every drawing is made from the placement map alone: the pieces of a card and its free share add
up to it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, computed_field

from fleetctl.documents.base import FORMAT_VERSION, Moment, Stored, Versioned
from fleetctl.documents.inventory import NodeState, address_of, host_port
from fleetctl.documents.plan import ActionMember, Blocked, Certificate, Growth, PlanInventory, PlanPrice
from fleetctl.documents.position import FleetSource, Position
from fleetctl.documents.weights import Artifact, GotWeights, is_absent, is_zero


class EqualNodes(Stored):
    """Nodes of one kind that take equally many members."""

    hardware: str = Field(description="the kind of node, such as 8xH200")
    members_each: int = Field(description="members of new replicas on each node")
    price: int | None = Field(None, exclude_if=is_absent, description="what one of these members costs an hour, in "
                                                                      "1/10^6; absent = unknown, or members differ")
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
    variant: str | None = Field(
        None, exclude_if=is_absent, description="one variant of the model by itself; the row before has all together")
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


class Change(Stored):
    """One hypothetical change."""

    op: Literal["loseNode", "cordon", "addNode", "scale"]
    about: str = Field(description="as the user wrote it")
    message: str = Field(description="its effect in words")
    nodes: list[str] = Field(default_factory=list)


class Counts(Stored):
    """The counts of one model in one plan, or of all."""

    wanted: int
    live: int
    create: int
    blocked: int
    on_new_nodes: int = Field(0, description="of the blocked ones: would run on nodes that may be added")


class VariantChange(Stored):
    """How many replicas of one variant run, or would be created, before and after."""

    name: str
    before: int
    after: int


class ModelChange(Stored):
    """One model before and after. `lost` = live before but not after.

    Of these, `replaced` get a new place, `surplus` are not needed for the target, and `missing` fit nowhere.
    """

    key: str
    before: Counts
    after: Counts
    lost: int = 0
    replaced: int = 0
    surplus: int = 0
    missing: int = 0
    variants: list[VariantChange] = Field(
        default_factory=list, exclude_if=is_zero, description="of a model with variants, the preferred one first")


class NewReplica(Stored):
    """A replica that the plan after the changes would create."""

    model: str
    replica_id: int
    variant: str | None = Field(None, exclude_if=is_absent, description="the name of the variant, if the model has any")
    members: list[ActionMember]


class VariantLoss(Stored):
    """How many of the lost replicas are of one variant, and how many of those with a new place would be."""

    name: str
    lost: int
    replaced: int


class LostModel(Stored):
    """The effect of losing one node on one model. `lost` includes the plan's new replicas there."""

    model: str
    lost: int
    replaced: int
    surplus: int = Field(0, description="lost, but not needed for the target")
    missing: int = Field(0, description="lost, needed, and without a new place")
    on_new_nodes: int = Field(0, description="of the missing ones: would run on nodes that may be added")
    code: str | None = None
    message: str = Field("", description="why a missing replica fits nowhere, for the first of these nodes")
    variants: list[VariantLoss] = Field(
        default_factory=list, exclude_if=is_zero, description="of a model with variants, the preferred one first")


class NodeLoss(Stored):
    """Nodes whose loss, one at a time, has the same effect."""

    hardware: str
    nodes: list[str]
    models: list[LostModel] = Field(default_factory=list)
    unmanaged: int = Field(0, description="lost replicas that are not this fleet's")


class PriceChange(Stored):
    """What the fleet costs with today's plan applied, and with the plan after the changes."""

    before: PlanPrice
    after: PlanPrice


class WhatIf(Versioned):
    """The comparison; nothing was changed. `before` counts today's plan, `after` the plan after the changes."""

    kind: Literal["WhatIf"] = "WhatIf"
    fleet: str
    inventory: PlanInventory
    changes: list[Change] = Field(default_factory=list)
    before: Counts
    after: Counts
    price: PriceChange | None = Field(None, exclude_if=is_absent, description="absent = the fleet file has no prices")
    models: list[ModelChange] = Field(default_factory=list, description="every model, in the order of the fleet file")
    unmanaged_lost: list[str] = Field(
        default_factory=list, description="replicas on lost nodes that are not this fleet's")
    created: list[NewReplica] = Field(default_factory=list, description="what the plan would create after the changes")
    blocked: list[Blocked] = Field(default_factory=list, description="replicas without a place, and why")
    growth: list[Growth] = Field(default_factory=list, description="after: the node types that may be added")
    certificate: Certificate
    each_node: list[NodeLoss] | None = Field(
        None, description="with --each-node: the effect of losing each node, worst first")
    exit_code: int = Field(description="the detailed exit code: 0 nothing to do, 2 changes, 3 replicas without a place")


Holder = Literal["live", "new", "foreign", "unknown"]


class Piece(Stored):
    """A share of one card, and its holder."""

    holder: Holder = Field(
        description="live = runs; new = the plan would create it; foreign = runs, but is not this fleet's; "
                    "unknown = granted to an unknown holder")
    share: int
    model: str | None = None
    replica: str | None = Field(None, description="model/id, or the actor's own name")
    variant: str | None = Field(None, exclude_if=is_absent, description="of the replica, if its model has any")
    certain: bool = Field(True, description="false = the card was inferred from Ray's rule, not reported")


class MapCard(Stored):
    """One card of a node."""

    index: int
    hardware: str | None = Field(None, description="the card's model, if known")
    memory: int | None = None
    free_share: int = 0
    dirty: bool = Field(False, description="more of it is used than granted, so it is not offered")
    pieces: list[Piece] = Field(default_factory=list)


class Beside(Stored):
    """A member that runs on the node without a card."""

    holder: Holder
    model: str
    replica: str
    variant: str | None = Field(None, exclude_if=is_absent, description="of the replica, if its model has any")
    warm: int | None = Field(None, exclude_if=is_absent, description="if WARM: bytes of its weights in memory")


class MapNode(Stored):
    """One node. `cordonedBy` names the policy that keeps new replicas away."""

    id: str
    name: str
    hardware: str
    state: NodeState
    new: bool = Field(False, description="it does not exist yet: Ray's autoscaler would be asked for it")
    cordoned_by: str | None = None
    cards: list[MapCard] = Field(default_factory=list)
    beside: list[Beside] = Field(default_factory=list)


class LegendVariant(Stored):
    """The replicas of one variant of a model on the map; an empty name = of none by name."""

    name: str
    live: int = 0
    new: int = 0
    foreign: int = 0


class LegendEntry(Stored):
    """One model on the map."""

    model: str
    live: int = Field(0, description="managed replicas that run")
    new: int = Field(0, description="replicas the plan would create")
    foreign: int = Field(0, description="running replicas of another fleet, or of none")
    variants: list[LegendVariant] = Field(
        default_factory=list, exclude_if=is_zero, description="the same for each variant, the preferred one first")


class PlacementMap(Versioned):
    """Where each replica runs, and with a fleet also which ones the plan would add."""

    kind: Literal["PlacementMap"] = "PlacementMap"
    fleet: str | None = None
    inventory: PlanInventory
    legend: list[LegendEntry] = Field(default_factory=list, description="by the amount they hold, largest first")
    nodes: list[MapNode] = Field(default_factory=list, description="by name")


class RenderedFleet(Stored):
    """One fleet document with everything that its files extend merged into it."""

    format_version: str = Field(FORMAT_VERSION, description="the format of this document")
    kind: Literal["RenderedFleet"] = Field("RenderedFleet", description="always RenderedFleet")
    files: list[FleetSource] = Field(description="every file that was read, extended ones included")
    masked: bool = Field(description="whether values of engine environments are replaced by ***")
    fleet: dict[str, Any] = Field(description="the merged document, as fleet.schema.json describes it")
    origins: dict[str, Position] = Field(description="the position of each value, by paths as spec.models[0].replicas")


def _require_address(text: str) -> str:
    """Refuse all but an IP address: most formats have no quotes for an address."""
    if (address := address_of(text)) is None:
        raise ValueError("not the IP address of a machine")
    return address


class Endpoint(Stored):
    """One serving member of a ready replica: a Standalone, or the leader of a gang."""

    replica_id: int
    group: str
    copy_index: int = Field(0, alias="copy")
    role: str
    node: str = Field(description="the node's name")
    address: Annotated[str, AfterValidator(_require_address)]
    port: Annotated[int, Field(ge=1, le=65535)]
    path: str = Field(description="the path of the model's API")
    variant: str | None = Field(None, exclude_if=is_absent, description="of its replica, if the model has any")
    weight: int | None = Field(None, exclude_if=is_absent, description="of its variant; absent = that of the model")

    @property
    def host_port(self) -> str:
        """Address and port, as in a URL."""
        return host_port(self.address, self.port)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def url(self) -> str:
        """The URL to which clients send requests."""
        return f"http://{self.host_port}{self.path}"


class ServedModel(Stored):
    """One model and its endpoints, if any."""

    key: str
    name: str = Field(description="the name that clients send; empty = the key cannot be one, and it has no other")
    path: str
    weight: int
    endpoints: list[Endpoint]

    def weight_of(self, endpoint: Endpoint) -> int:
        """Return the weight of one of its endpoints."""
        return self.weight if endpoint.weight is None else endpoint.weight


class Endpoints(Versioned):
    """All models of a fleet in the file's order, or of all fleets by key."""

    kind: Literal["Endpoints"] = "Endpoints"
    observed_at: Moment
    source: str
    fleet: str | None = Field(None, description="only the replicas of this fleet; null = of all fleets")
    models: list[ServedModel]


class FetchedWeights(Stored):
    """One artifact on one node; `fetched` null = it is missing, and `trouble` says why."""

    node_id: str
    node: str = ""
    artifact: Artifact
    fetched: GotWeights | None = None
    trouble: str = ""


class Prefetched(Versioned):
    """The result of `prefetch`: a row per node and artifact."""

    kind: Literal["Prefetched"] = "Prefetched"
    fleet: str
    model: str
    rows: list[FetchedWeights]

    @computed_field(description="0 all are present, 3 some are, 1 none is")  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> int:
        """Return the exit code of `prefetch`."""
        fetched = sum(row.fetched is not None for row in self.rows)
        return 0 if fetched == len(self.rows) else 3 if fetched else 1


class CachedArtifact(Stored):
    """One artifact in the cache of a node, with its views."""

    artifact: Artifact
    bytes: int
    used: bool = Field(False, description="a process on the node uses it, so it is kept")
    removed: bool = False
    trouble: str = Field("", description="why it could not be removed")
    cache: str | None = Field(
        None, exclude_if=is_absent, description="the model and fleet whose compile cache it is; absent = weights")


class NodeCache(Stored):
    """The artifacts in one node's cache that no fleet file names."""

    node_id: str
    node: str = ""
    root: str = Field("", description="the folder of the cache")
    artifacts: list[CachedArtifact] = Field(default_factory=list)
    trouble: str = Field("", description="why the node did not answer")


class PrunedRuns(Stored):
    """The ended runs of one verb that the history of their fleet does not keep, and how many of them were removed."""

    fleet: str = Field("", description="empty = they belong to no fleet, such as notes about nodes")
    verb: str
    found: int
    removed: int
    newest: Moment | None = Field(None, description="when the newest of them began")


class Pruned(Versioned):
    """The result of `prune`: what it found, and what it removed."""

    kind: Literal["Pruned"] = "Pruned"
    dry_run: bool = False
    nodes: list[NodeCache]
    runs: list[PrunedRuns] | None = Field(
        None, exclude_if=is_absent, description="only with --runs: runs instead of weights")

    @computed_field(description="3 if a node did not answer, or something was not removed, else 0")  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> int:
        """Return the exit code of `prune`; keeping what is in use is no failure."""
        left = any(not (artifact.removed or artifact.used or self.dry_run)
                   for node in self.nodes for artifact in node.artifacts)
        left = left or any(row.removed < row.found and not self.dry_run for row in self.runs or ())
        return 3 if left or any(node.trouble for node in self.nodes) else 0
