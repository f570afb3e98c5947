"""The plan: what would be created where, what is held, what is blocked and why. It has no operation that removes.

Bytes are integers; `gpus` and `cpus` are integers of 1/10000. Lists have a fixed order: equal input gives equal bytes.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from fleetctl.documents.base import Moment, Stored, Versioned
from fleetctl.documents.difference import PlanChange
from fleetctl.documents.fleet import Lifecycle
from fleetctl.documents.position import FleetSource, Position
from fleetctl.documents.quantity import count_of
from fleetctl.documents.weights import PlannedWeights, Ports, is_absent, is_zero

WAITS_FOR_NODES = "WAITS_FOR_NODES"
"""The code of blocked replicas that would run on nodes that the autoscaler may add."""


class GitFacts(Stored):
    """The git commit of the fleet file."""

    commit: str
    branch: str | None = None
    dirty: bool = False


class PlanHistory(Stored):
    """How long the cluster keeps ended runs, if the fleet file says so; an apply deletes older ones."""

    keep_runs: int
    keep_for: float = Field(description="seconds")


class PlanFleet(Stored):
    """The fleet this plan is for."""

    name: str
    namespace: str = "fleet"
    files: list[FleetSource] = Field(default_factory=list)
    git: GitFacts | None = None
    history: PlanHistory | None = Field(
        None, exclude_if=is_absent, description="spec.history of the fleet file; absent = its defaults")


class PlanInventory(Stored):
    """The inventory this plan was made from."""

    observed_at: Moment
    source: str
    address: str | None = None
    session_id: str | None = None


class Summary(Stored):
    """Replica counts over the whole plan."""

    wanted: int = 0
    live: int = 0
    create: int = 0
    promote: int = Field(0, exclude_if=is_zero, description="of those to create: WARM now, on their nodes")
    prefetch: int = Field(0, exclude_if=is_zero, description="nodes that fetch weights to keep them on disk")
    after_pilot: int = Field(0, exclude_if=is_zero, description="beside those to create: they have room, and are "
                                                                "created once a pilot of their spec is ready")
    hold: int = Field(0, description="live replicas beyond the target, kept")
    blocked: int = 0
    unmanaged: int = 0
    drift: int = 0
    lost: int = 0
    starting: int = Field(0, description="of the live ones: not ready yet for the first time")
    restarting: int = Field(0, description="of the live ones: ended, and being restarted by Ray")
    not_ready: int = Field(0, exclude_if=is_zero, description="of the live ones: up, but no longer ready")
    outdated: int = Field(0, description="of the live ones: started with a different spec than the file's")
    reload: int = Field(0, exclude_if=is_zero, description="of the outdated ones: reload their weights in place")


class PlanPrice(Stored):
    """What replicas cost an hour, in 1/10^6 of the unit of the fleet file; docs/price.md."""

    adds: int = Field(description="what the new replicas cost, and the new nodes that the plan waits for")
    new_nodes: int = Field(0, exclude_if=is_zero, description="of that: the new nodes")
    total: int = Field(description="what the live replicas of this fleet's models cost, and all that the plan adds")
    unpriced: int = Field(0, exclude_if=is_zero, description="nodes that these replicas use, or wait for, without a "
                                                             "price: no sum has what they cost")
    examples: list[str] = Field(default_factory=list, exclude_if=is_zero, description="at most five names of those "
                                                                                      "that exist")


class Certificate(Stored):
    """How many missing replicas were placed, an upper bound, and the argument that proves it."""

    placed: int = Field(description="new replicas this plan places")
    wanted: int = Field(description="new replicas the targets ask for")
    upper_bound: int = Field(description="no plan in the order of priorities places more new replicas than this")
    status: Literal["optimal", "feasible"] = Field(description="optimal = proven: no plan serves the priorities better")
    method: str
    repacked_bound: int | None = Field(
        None, description="the bound if running replicas could be moved, if higher; null = it is not, or unknown")
    on_new_nodes: int = Field(0, description="of those not placed: would run on nodes that may be added")
    after_pilot: int = Field(0, exclude_if=is_zero, description="of those placed: no action creates them yet; they "
                                                                "follow once a pilot of their spec is ready")


class VariantRow(Stored):
    """One variant of a model, in order of preference."""

    name: str
    live: int = Field(description="live replicas of it, outdated ones included")
    create: int = 0
    after_pilot: int = Field(0, exclude_if=is_zero, description="to create once a pilot of it is ready")
    least: int = Field(0, alias="min", exclude_if=is_zero, description="its own minimum")
    most: int | None = Field(None, alias="max", exclude_if=is_absent, description="its own limit on new replicas")


class ModelRow(Stored):
    """One row per model of the fleet file, even if there is nothing to do; `reason` is never empty."""

    key: str
    wanted: int = Field(description="`replicas` of the file, or the sum of the `min` of its variants if that is more")
    live: int
    starting: int = Field(description="of the live ones: not ready, restarting ones included")
    restarting: int = Field(0, description="of the starting ones: ended, and being restarted by Ray")
    not_ready: int = Field(0, exclude_if=is_zero, description="of the live ones: up, but no longer ready; kept")
    restarted: int = Field(0, description="of the live ones: ready again for less than ten minutes after a restart")
    current: int = Field(0, description="of the live ones: started with the file's spec")
    outdated: int = Field(
        0, description="of the live ones: started with a different spec; others may run an unknown spec")
    create: int
    after_pilot: int = Field(
        0, exclude_if=is_zero, description="beside `create`: they have room, and are created once a pilot of their "
                                           "spec is ready; docs/pilot.md")
    reload: int = Field(0, exclude_if=is_zero, description="of the outdated ones: reload their weights in place")
    blocked: int
    surplus: int = Field(description="of the live ones: beyond `replicas`, and not asked for by the `min` of a variant")
    startup_timeout: float = Field(description="seconds a replica may take to become ready")
    startup_bytes: int = Field(
        0, exclude_if=is_zero, description="size of the weights to load, for which `startupTimeout` is longer")
    longest_start: float = Field(
        0, exclude_if=is_zero, description="seconds that the longest of its starts took, if `startupTimeout` is longer "
                                           "for that")
    fetch: int = Field(0, exclude_if=is_zero, description="nodes that fetch its weights to keep them on disk")
    reason: str
    variants: list[VariantRow] = Field(default_factory=list, exclude_if=is_zero, description="of a model with variants")
    labels: dict[str, str] = Field(default_factory=dict, description="of the model in the fleet file")
    source: Position | None = None


class PlannedResident(Stored):
    """What may use `memory` bytes of each card of a node beside replicas; `process` null = whatever it is."""

    memory: int
    process: str | None = None


class ActionMember(Stored):
    """One member, its node, what it newly claims there, and its weights. `gpus`, `cpus` in 1/10000; `vram` per card."""

    cooling_cards: list[str] = Field(
        default_factory=list, exclude_if=is_zero, description="UUIDs of the node's cooling cards, which it refuses")
    residents: list[PlannedResident] = Field(
        default_factory=list, exclude_if=is_zero, description="what else may use memory of the node's cards")
    group: str
    copy_index: int = Field(alias="copy")
    role: str
    rank: int
    node_id: str
    node: str
    slot: int = Field(description="the replica's slot on this node")
    gpus: int
    vram: int
    cpus: int
    memory: int
    weights: PlannedWeights | None = Field(None, exclude_if=is_absent)
    cache_ports: Ports | None = Field(
        None, exclude_if=is_absent, description="the node's weightsPorts, for the compile caches of its engine")
    variables: dict[str, str] = Field(
        default_factory=dict, exclude_if=is_zero, description="of a prefetch: those that a member of a new replica "
                                                              "there would have")
    stop: dict[str, Any] | None = Field(
        None, exclude_if=is_absent, description="how its engine is ended, as in the file; grace in seconds")


class PlannedReload(Stored):
    """How a running replica loads other weights in place. Nothing is ended."""

    actor_id: str
    runs: str = Field(description="its spec hash before the reload")
    requests: list[dict[str, Any]] = Field(description="the requests to its engine in their order, as in the file")


class TimeToReady(Stored):
    """How long a start will take until it is ready, in whole seconds, and from what that is known."""

    about: int
    least: int | None = Field(None, exclude_if=is_absent, description="at least nine of ten starts take `least` to "
                                                                      "`most`; absent = fewer than three are known")
    most: int | None = Field(None, exclude_if=is_absent)
    why: str = Field(description="from what it is known")


NO_REPLICA = -1
"""The replica id of an action that is of no replica; JSON leaves it out."""


class Action(Stored):
    """One thing that an apply does for a model.

    create = start a replica; promote = the same on the nodes and under the id of a WARM replica of its model; reload =
    let a running replica load other weights; prefetch = let nodes fetch the weights that `cold` keeps there.
    """

    id: str = Field(description="<model>/<replicaId>, or <model>/prefetch")
    op: Literal["create", "promote", "reload", "prefetch"]
    model: str
    replica_id: int = Field(NO_REPLICA, exclude_if=lambda value: value == NO_REPLICA,
                            description="absent = a prefetch, which is of no replica")
    variant: str | None = Field(None, exclude_if=is_absent, description="the name of the variant, if the model has any")
    spec_hash: str = Field(description="of the spec afterwards")
    engine_hash: str | None = Field(None, exclude_if=is_absent, description="of the spec without its weights")
    wanted: int = Field(0, exclude_if=is_zero, description="of a new replica: the model's target, plus its surge while "
                                                           "replicas are outdated: the agent creates no more")
    priority: int = 0
    lifecycle: Lifecycle = Field(description="startupTimeout is also the time limit of a reload, and of each node of a "
                                             "prefetch")
    ready_in: TimeToReady | None = Field(None, exclude_if=is_absent, description="of a create; absent = unknown")
    reload: PlannedReload | None = Field(None, exclude_if=is_absent)
    members: list[ActionMember]

    @model_validator(mode="after")
    def _has_what_its_operation_needs(self) -> Action:
        if (self.replica_id < 0) != (self.op == "prefetch") or (self.reload is None) == (self.op == "reload"):
            raise ValueError("its replicaId or reload does not fit its op")
        return self


class Hold(Stored):
    """A model with more live replicas than wanted; all of them are kept."""

    model: str
    wanted: int = Field(description="of the live ones: those that are not surplus")
    live: int
    surplus: int


class Reason(Stored):
    """Why some nodes cannot take the replica, with the arithmetic. `need`, `best`, `short` are texts with units."""

    code: str
    variant: str | None = Field(None, exclude_if=is_absent, description="of a model with more than one")
    node_count: int
    need: str
    best: str
    short: str
    examples: list[str] = Field(default_factory=list, description="at most five node names")
    in_use: list[str] = Field(
        default_factory=list, description="for CARD_IN_USE: how much of which cards of the node in `best` is in use, "
                                          "and by which processes; at most five")


class Counted(Stored):
    """Counts for the member that does not fit, after everything in this plan is placed."""

    nodes: int = Field(description="nodes that are not dead")
    selected: int = Field(description="of those, allowed by its selector")
    usable: int = Field(description="of those, neither cordoned nor draining, and with a free slot for the model")
    fitting: int = Field(description="of those, able to take one such member")
    free_gpus: int = Field(description="1/10000 GPU free on the usable nodes; whole cards only, if it asks for those")
    on_nodes: int = Field(description="the number of usable nodes with free GPUs")
    most_on_one: int = Field(description="the most free GPUs on one node, in 1/10000")


class InTheWay(Stored):
    """A replica whose removal would make room. Reported only: fleetctl removes nothing by itself."""

    replica: str = Field(description="<model>/<replicaId>, or the actor's own name in a foreign scheme")
    model: str
    replica_id: int | None = None
    nodes: list[str] = Field(description="names of the nodes on which it makes room")
    frees: int = Field(description="1/10000 GPU that it holds there")
    variant: str | None = Field(
        None, exclude_if=is_absent, description="the variant that would fit, of a model with more than one")
    planned: bool = Field(False, description="it does not run yet: this plan would create it")
    surplus: bool = Field(
        False, description="of this fleet, but beyond its model's target and asked for by no min, or not in the file")
    owner: Literal["fleet", "otherFleet", "foreign"] = Field(
        description="foreign = without a fleet's mark; this file decides only about its own fleet")
    fleet: str | None = None
    priority: int | None = Field(None, description="of its model in this file; null = not in it")


class Addition(Stored):
    """Empty nodes of one shape that would have to be added: the smallest addition found. Amounts are per node.

    A plan with these nodes places the replica, and one with fewer does not, unless the number is estimated.
    """

    nodes: int = Field(description="for one more replica")
    nodes_for_all: int = Field(description="for all blocked replicas of the model; 0 = not known")
    estimated: bool = Field(False, description="no plan was made with `nodes`: too much is blocked to try them all")
    estimated_for_all: bool = Field(False, description="the same for `nodesForAll`")
    variant: str | None = Field(
        None, exclude_if=is_absent, description="the variant that would fit, of a model with more than one")
    shape: str = Field(description="in words, such as 8xH200")
    like: str | None = Field(None, description="a node of this shape; null = no such node, the amounts are the claim's")
    gpus: int = Field(0, description="1/10000")
    vram: int | None = Field(None, description="bytes of each card; null = unknown")
    cpus: int = Field(0, description="1/10000")
    memory: int = 0
    labels: dict[str, str] = Field(default_factory=dict, description="labels it needs, besides those of `like`")
    one_value_of: str | None = Field(None, description="a label of which all the nodes need one value, whichever")


class Blocked(Stored):
    """Replicas of one model that could not be placed for one reason, and what would help.

    The remedies of two blocked models may name the same capacity.
    """

    model: str
    replicas: int
    on_new_nodes: int = Field(0, description="of these: would run on nodes that the autoscaler may add")
    after_pilot: int = Field(0, exclude_if=is_zero, description="of `onNewNodes`: start once a pilot is ready; their "
                                                                "nodes are requested then")
    code: str = Field(description="such as INSUFFICIENT_GPU or QUOTA; docs/placement.md has all of them")
    message: str
    reasons: list[Reason] = Field(default_factory=list)
    counted: Counted | None = None
    make_room: list[InTheWay] = Field(
        default_factory=list, description="one more would fit without all of these; empty = no such set is known")
    would_fit: list[Addition] = Field(
        default_factory=list, description="with all of these it would fit; empty = no such addition is known")
    no_remedy: str = Field("", description="why makeRoom or wouldFit is empty, if known")


class GrowingModel(Stored):
    """Replicas of one model that would run on new nodes of a type."""

    model: str
    count: int


class Growth(Stored):
    """One type of `spec.cluster.grow`, and the nodes of it that are needed. No action covers replicas on new nodes."""

    name: str
    labels: dict[str, str]
    gpus: int = Field(description="cards of one node")
    cpus: int = Field(description="1/10000 CPU of one node")
    keeps: list[str] = Field(description="ids of needed nodes of this type: those on which this fleet runs, or would "
                                         "run; all that are alive, if new ones are needed")
    nodes: int = Field(0, description="new nodes")
    after_pilot: int = Field(0, exclude_if=is_zero, description="further new nodes, which are requested once a pilot "
                                                                "is ready")
    price: int | None = Field(None, exclude_if=is_absent, description="what one new node costs an hour, in 1/10^6; "
                                                                      "absent = unknown")
    max: int = Field(description="the most nodes of this type, as the file says")
    replicas: list[GrowingModel] = Field(default_factory=list, description="what would run on the new nodes")

    @property
    def in_all(self) -> int:
        """How many new nodes are needed, those that follow a pilot included."""
        return self.nodes + self.after_pilot


class Drift(Stored):
    """A running replica that differs from the file; reported, never acted on."""

    model: str
    replica_id: int
    code: Literal["SPEC_CHANGED", "SELECTOR_NO_LONGER_MATCHES", "ABOVE_SLOT_CAP"]
    message: str
    runs: str | None = Field(None, description="if outdated: the spec hash it was started with")
    wants: str | None = Field(None, description="if outdated: the spec hash of the file")
    variant: str | None = Field(None, exclude_if=is_absent, description="if outdated: the variant that it runs")
    changes: list[str] | None = Field(
        None, description="if outdated: the differences in words, or why they are unknown; looked up for plans that "
                          "are shown, and never in one that can be applied")

    @property
    def is_outdated(self) -> bool:
        """Whether it was started with another spec than the file's."""
        return self.code == "SPEC_CHANGED"


class Unmanaged(Stored):
    """Capacity in use that this fleet does not count: of another fleet or scheme, or of a model not in the file."""

    model: str
    replica_id: int | None = None
    foreign_id: str | None = None
    fleet: str | None = None
    state: str
    nodes: list[str] = Field(default_factory=list)
    message: str


class Lost(Stored):
    """A replica whose actor is live for Ray but cannot serve; not counted, and its id is not reused."""

    model: str
    replica_id: int
    code: Literal["NODE_DEAD", "NEVER_CONSTRUCTED"] = "NODE_DEAD"
    nodes: list[str]
    message: str


class Note(Stored):
    """What is odd about nodes, such as a setting without effect, or cards that are not reported; it blocks nothing."""

    code: Literal["SLOTS_LABEL_IGNORED", "SLOTS_LABEL_OVERRULED", "CARDS_UNREPORTED", "MODEL_MAY_NOT_FIT"]
    level: Literal["warning", "notice"]
    model: str | None = Field(None, exclude_if=is_absent, description="the model that may not fit on their cards")
    message: str
    node_count: int
    nodes: list[str] = Field(default_factory=list, description="at most five names")


class FileWarning(Stored):
    """A warning about the fleet files, as `validate` prints it; it blocks nothing."""

    code: str = Field(description="FL060 to FL079; docs/fleet-file.md has all of them")
    message: str
    source: Position
    model: str | None = Field(None, exclude_if=is_absent, description="the model it is about; absent = none alone")
    allowed: str | None = Field(None, exclude_if=is_absent)
    suggestion: str | None = Field(None, exclude_if=is_absent)
    new: bool = Field(False, exclude_if=is_zero, description="with --base: there are fewer of this code, message and "
                                                             "model in the base")


class PolicyFinding(Stored):
    """A policy of the fleet file that this plan would break. One that is not lifted makes the exit code 4."""

    code: Literal["MAX_NEW_REPLICAS", "MAX_NEW_GPUS", "MAX_CHANGE_PERCENT", "PROTECTED_MODEL", "SELECTOR_NOT_ALLOWED"]
    key: str = Field(description="in the fleet file, such as spec.policy.maxNewReplicas")
    message: str = Field(description="what was found, what is allowed, what to do")
    model: str | None = None
    limit: str = Field(description="what is allowed, as text")
    found: str = Field(description="what the plan would do, as text")
    liftable: bool = Field(description="a threshold: --force lifts it")
    lifted: bool = Field(False, description="--force was given")
    source: Position | None = Field(None, description="the position of the policy in the file")


class PlanFlags(Stored):
    """The flags that shaped a plan: enough to make it again."""

    files: list[str] = Field(default_factory=list, description="the fleet files and folders, as given with -f")
    targets: list[str] = Field(default_factory=list)
    excludes: list[str] = Field(default_factory=list)
    selector: str | None = Field(None, description="labels of the models planned; null = any")
    adopt_from: str | None = None
    force: bool = Field(False, description="thresholds of the policy are lifted")
    ignore_cooldown: bool = Field(False, description="specs, nodes and cards that cool are used anyway")


class Plan(Versioned):
    """A plan; `planId` is the SHA-256 of its canonical JSON without it."""

    kind: Literal["Plan"] = "Plan"
    format_version: str = "2.0"
    plan_id: str = ""
    tool_version: str
    fleet: PlanFleet
    inventory: PlanInventory
    expires_at: Moment | None = None
    summary: Summary
    price: PlanPrice | None = Field(None, exclude_if=is_absent, description="absent = the fleet file has no prices")
    certificate: Certificate
    models: list[ModelRow]
    specs: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="by spec hash: workers and placement of the models acted on, resolved; "
                                          "asSet = both as the user set them, which the hash covers")
    actions: list[Action] = Field(
        default_factory=list, description="new replicas in order of creation, reloads (one per model at a time), and "
                                          "prefetches")
    after_pilot: list[Action] = Field(
        default_factory=list, exclude_if=is_zero, description="new replicas that follow once a pilot of their spec is "
                                                              "ready, where they would run now; planned again then")
    holds: list[Hold] = Field(default_factory=list)
    blocked: list[Blocked] = Field(default_factory=list)
    growth: list[Growth] = Field(default_factory=list, description="the node types that the autoscaler may add")
    autoscaler: list[str] = Field(
        default_factory=list, description="what Ray's autoscaler reports about the nodes it was asked for; looked up "
                                          "for plans that are shown, and never in one that can be applied")
    drift: list[Drift] = Field(default_factory=list)
    unmanaged: list[Unmanaged] = Field(default_factory=list)
    lost: list[Lost] = Field(default_factory=list)
    notes: list[Note] = Field(
        default_factory=list, description="settings on nodes that have no effect, and cards that are not reported")
    file_warnings: list[FileWarning] = Field(
        default_factory=list, exclude_if=is_zero, description="of the planned models, and of the files as a whole")
    policy: list[PolicyFinding] = Field(default_factory=list, description="policies this plan would break")
    change: PlanChange | None = Field(
        None, description="with --base: the effect of the change since that revision alone")
    options: PlanFlags = Field(default_factory=PlanFlags, description="the flags that shaped the plan")
    observed: dict[str, dict[str, int]] = Field(
        default_factory=dict, description="per planned model: live count and highest id, to detect a stale plan")
    exit_code: int = Field(description="the detailed exit code: 0 nothing to do, 2 changes, 3 partial, 4 policy")

    @property
    def starts(self) -> list[Action]:
        """The actions that start a replica."""
        return [action for action in self.actions if action.op in ("create", "promote")]

    @property
    def all_starts(self) -> list[Action]:
        """The same, and those that follow a pilot."""
        return [*self.starts, *self.after_pilot]

    @property
    def reloads(self) -> list[Action]:
        """The actions by which a running replica loads other weights."""
        return [action for action in self.actions if action.op == "reload"]

    @property
    def prefetches(self) -> list[Action]:
        """The actions by which nodes fetch weights to keep them."""
        return [action for action in self.actions if action.op == "prefetch"]

    @property
    def waits_for_nodes(self) -> bool:
        """Whether a blocked replica would run on new nodes."""
        return any(blocked.code == WAITS_FOR_NODES for blocked in self.blocked)

    @property
    def new_nodes(self) -> str:
        """The new nodes that it waits for, in words; empty = they have joined, but their cards are unknown yet."""
        return ", ".join(count_of(growth.nodes, f"new {growth.name} node") for growth in self.growth if growth.nodes)

    @property
    def nodes_after_pilot(self) -> str:
        """The further new nodes that are requested once a pilot is ready, in words; empty = there are none."""
        return ", ".join(count_of(growth.after_pilot, f"{growth.name} node") for growth in self.growth
                         if growth.after_pilot)

    def asks_more_than(self, former: Plan) -> bool:
        """Return whether it requests more nodes of a type than a former plan of the fleet."""
        before = {growth.name: len(growth.keeps) + growth.nodes for growth in former.growth}
        return any(growth.nodes and len(growth.keeps) + growth.nodes > before.get(growth.name, 0)
                   for growth in self.growth)

    @property
    def outdated(self) -> list[str]:
        """The model of each outdated replica of a model that the file still wants: what a rollout would replace."""
        wanted = {row.key for row in self.models if row.wanted}
        return [drift.model for drift in self.drift if drift.is_outdated and drift.model in wanted]


class MaskedPlan(Plan):
    """A plan for display: env values are `***`, and the id is that of the unmasked plan. It must not be applied."""

    masked: Literal[True] = True
