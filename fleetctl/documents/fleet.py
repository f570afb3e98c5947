"""The fleet file (apiVersion fleetctl/v1) as people write it; the published schema is generated from it.

Rules over several fields (a gang's geometry, duplicate names) are checked in `fleetfile/`, with positions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from fleetctl.documents.base import (
    DNS_LABEL,
    HIDDEN,
    LIST,
    MAPPING,
    MAPPING_OR_LIST,
    TEXT,
    TEXT_OR_LIST,
    TEXT_OR_MAPPING,
    Authored,
    DnsLabel,
    OneOf,
    PathFromRoot,
    Stored,
    full_match,
    is_model_key,
    is_served_name,
    passes,
    refusal,
)
from fleetctl.documents.engine import Engine, Port
from fleetctl.documents.quantity import Bytes, CardBytes, Cpus, Gpus, GpuSum, Parameters, Price, Seconds
from fleetctl.documents.selector import Expression, LabelKey, LabelValue, Selector
from fleetctl.documents.weights import Ports, Weights

MAX_CARDS = 64
MAX_NODES = 10_000


class GrowNode(Authored):
    """The resources and labels of a new, empty node of a type."""

    gpus: Annotated[int, Field(ge=0, le=MAX_CARDS)] = Field(0, description="its cards")
    vram: Bytes = Field(0, description="memory of each card; absent = unknown, so no member with vram fits")
    cpus: Cpus = Field(description="its CPUs")
    memory: Bytes = Field(description="its host memory")
    labels: Annotated[dict[LabelKey, LabelValue], Field(min_length=1)] = Field(
        description="its Ray labels, by which the autoscaler chooses the type; a node with all of them is of this type")

    @model_validator(mode="after")
    def _can_be_asked_for(self) -> GrowNode:
        if not self.gpus and not self.cpus:
            raise refusal("empty_node", "{found} has neither GPUs nor CPUs", "this node", "gpus, cpus or both")
        return self


class GrowType(Authored):
    """One type of node that the autoscaler may add: a worker group of KubeRay, or a node type of Ray's autoscaler."""

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(description="the name of the type, for people")
    node: GrowNode = Field(description="one node of this type")
    max: Annotated[int, Field(ge=1, le=MAX_NODES)] = Field(
        description="the most nodes of this type, existing ones included")
    price: Price | None = Field(
        None, description="what one new node costs an hour, in any unit, the same in the whole fleet; default: the "
                          "price that spec.nodes gives a node with these labels")


MAX_REPLICAS = 100_000
Mode = Literal["keep", "surge", "inPlace"]


def _check_json(body: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError):
        raise refusal("bad_body", "{found} is not {allowed}", body, "a JSON object") from None
    return body


Body = Annotated[dict[str, Any], AfterValidator(_check_json), WithJsonSchema({"type": "object"})]


MAX_RELOAD_REQUESTS = 16


class HttpReload(Authored):
    """A request to an engine; it has succeeded if the status is 200 to 299 and the answer is not {"success": false}."""

    path: PathFromRoot = Field(description="the path, such as /update_weights_from_disk")
    method: Literal["POST", "PUT", "GET"] = Field("POST", description="POST, PUT or GET")
    port: Port | None = Field(None, description="default: the port that passed the readiness probe, else FLEETCTL_PORT")
    body: Body | None = Field(
        None, description="sent as JSON; $(FLEETCTL_NEW_MODEL_DIR) in its strings is the folder with the new weights")


class Reload(Authored):
    """How an engine loads other weights while it runs; or one step of that, in a list."""

    http: HttpReload = Field(description="a request to the engine of rank 0")


Reloads = Annotated[
    Annotated[Reload, MAPPING] | Annotated[list[Reload], Field(min_length=1, max_length=MAX_RELOAD_REQUESTS), LIST],
    MAPPING_OR_LIST]


class Update(Authored):
    """What happens when running replicas have a different spec than the file; no mode ends a replica."""

    mode: Mode = Field(
        "keep", description="keep = outdated replicas count toward the target; surge = they do not, and current ones "
                            "are created beside them; inPlace = as keep, but if only weights have changed, engines "
                            "reload them")
    surge: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(
        1, description="with surge: the most replicas beyond the target at any time")
    reload: Reloads | None = Field(None, description="with inPlace: how an engine loads other weights: one request, "
                                                    "or a list of them in their order")


API_VERSION = "fleetctl/v1"
MAX_COUNT = 1_024
MAX_PROTECTED = 256
MAX_QUOTAS = 256
MAX_SCHEMAS = 16
MIN_KEPT_S = 3600

FileName = Annotated[str, Field(min_length=1)]
Role = Literal["Standalone", "Leader", "Worker"]


ShapeName = Annotated[str, full_match(DNS_LABEL, "bad_shape_name", "{found} is not a DNS label",
                                      "lower-case letters, digits and inner hyphens, at most 63 characters")]
ModelKey = Annotated[
    str, passes(is_model_key, "bad_model_key", "{found} cannot be a model key",
                "1 to 512 printable characters, without a blank at either end"),
    Field(description="the model's identity, such as meta-llama/Llama-3.1-8B",
          json_schema_extra={"pattern": f"^[^ {HIDDEN}]([^{HIDDEN}]{{0,510}}[^ {HIDDEN}])?$"}),
]
ServedName = Annotated[
    str, Field(min_length=1, max_length=256),
    passes(is_served_name, "bad_served_name", "{found} cannot be the name of a model in requests",
           "visible characters without commas, and no blank at either end"),
    Field(json_schema_extra={"pattern": f"^[^ ,{HIDDEN}]([^,{HIDDEN}]*[^ ,{HIDDEN}])?$"}),
]
UrlPath = Annotated[PathFromRoot, Field(max_length=256), full_match(
    r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*", "bad_url_path", "{found} is not {allowed}",
    "the path of a URL: ASCII letters, digits and ._~!$&'()*+,;=:@%/-")]


class Resources(Authored):
    """The resources that one member claims on its node; absent = 0."""

    gpus: Gpus = Field(0, description="a share of one card below 1, or whole cards")
    vram: CardBytes = Field(0, description="free memory needed on each card; auto = an estimate, docs/memory.md")
    cpus: Cpus = Field(0, description="CPUs")
    memory: Bytes = Field(0, description="host memory")


class Member(Authored):
    """One engine on one node; a Worker with a count is several equal members."""

    role: Role = Field("Standalone", description="a single Standalone, or a gang: one Leader and its Workers")
    count: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = Field(
        None, description="Worker only: the number of equal Workers; absent = 1")
    resources: Resources = Field(default_factory=Resources, description="per member")
    node_selector: Selector = Field(default_factory=dict, description="labels the node must have")
    weights: Weights | None = Field(None, description="the model files to provide before the engine starts")
    engine: Engine = Field(description="the process that this member runs")


class WorkerGroup(Authored):
    """One serving unit: one Standalone member, or a gang of one Leader and its Workers."""

    name: DnsLabel = Field(description="a DNS label, unique in its model")
    copies: Annotated[int, Field(ge=1, le=MAX_COUNT)] = Field(1, description="copies of the group in one replica")
    members: Annotated[list[Member], Field(min_length=1, max_length=64)] = Field(
        description="one Standalone, or one Leader and its Workers")

    @property
    def by_rank(self) -> list[Member]:
        """The member of each rank of one copy: the leader, then the Workers in file order."""
        members = sorted(self.members, key=lambda member: member.role == "Worker")
        return [member for member in members for _ in range(member.count or 1)]


Workers = Annotated[list[WorkerGroup], Field(min_length=1, max_length=64)]


class Spread(Authored):
    """Replicas spread over the values of a node label, with a limit that is never broken."""

    label: LabelKey = Field(description="the node label")
    max_per_value: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(
        description="the most replicas of the model per value, running ones included; a node without the label "
                    "takes none")


class SameLabel(Authored):
    """Keeps each gang, or all groups and copies of a replica together, within one value of a node label."""

    label: LabelKey = Field(description="the node label; a node without it has no value")
    scope: Literal["gang", "replica"] = Field(
        "gang", description="gang = each gang by itself; replica = every member of a replica, Standalones too")


def _in_one_form(same_label: str | SameLabel | None) -> str | SameLabel | None:
    """Return a mapping that only names the label as plain text, so that both forms have the same spec hash."""
    return same_label.label if isinstance(same_label, SameLabel) and same_label.scope == "gang" else same_label


class Placement(Authored):
    """Where the members of one replica may run relative to each other."""

    same_label: Annotated[
        Annotated[Annotated[LabelKey, TEXT] | Annotated[SameLabel, MAPPING], TEXT_OR_MAPPING] | None,
        AfterValidator(_in_one_form)
    ] = Field(None, description="keep a gang within one value of this node label; a mapping can keep a whole replica")
    ranks_per_node: Annotated[int, Field(ge=1, le=MAX_COUNT)] = Field(
        1, description="the most ranks of one gang on a node")
    spread: Annotated[Annotated[LabelKey, TEXT] | Annotated[Spread, MAPPING], TEXT_OR_MAPPING] | None = Field(
        None, description="spread a model's replicas over the values of this node label, before the tightest fit; a "
                          "mapping adds a limit")

    @property
    def spread_label(self) -> str | None:
        """The label of `spread`, whether it has a limit or not; None = it is not set."""
        return self.spread.label if isinstance(self.spread, Spread) else self.spread


class Restart(Authored):
    """What happens when a ready engine exits."""

    max: Annotated[int, Field(ge=0, le=1000)] = Field(
        5, description="restarts in a row, without ten minutes of readiness between them, before it stays down")
    backoff: Seconds = Field(10, description="wait before the first restart; doubles up to 5m")


class Lifecycle(Stored):
    """How a replica is started and restarted, in seconds; not part of the spec hash."""

    startup_timeout: float
    scheduling_timeout: float
    restart_max: int
    restart_backoff: float


WEIGHT_BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4}
WeightType = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"]


class Numbers(OneOf):
    """What a model is, as numbers, so that a plan knows what it takes on a card; not part of the spec."""

    KINDS = ("description", "parameters")
    ERROR = "numbers_kind"

    description: FileName | None = Field(
        None, description="a file that `fleetctl model describe` wrote, relative to this file")
    parameters: Parameters | None = Field(None, description="in short: the number of its parameters, such as 70B")
    weights: WeightType | None = Field(None, description="with parameters: the type of its weights; default bf16")


MemoryCheck = Literal["block", "warn"]


class ModelDefaults(Authored):
    """Values for every model that does not set them."""

    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = Field(0, description="higher is placed first")
    startup_timeout: Seconds = Field(1800, description="time an engine may take to become ready; default 30m")
    scheduling_timeout: Seconds = Field(60, description="time Ray may take to grant the planned resources; default 1m")
    restart: Restart = Field(default_factory=Restart, description="what happens when a ready engine exits")
    update: Update = Field(
        default_factory=Update, description="how a changed spec is rolled out; not part of the spec itself")
    placement: Placement = Field(default_factory=Placement, description="where the members of one replica may run")
    memory_check: MemoryCheck = Field(
        "block", description="what a plan does with a replica that certainly does not fit on its cards: block it, "
                             "or warn")


Weight = Annotated[int, Field(ge=1, le=1000)]


class Serving(Authored):
    """How `fleetctl endpoints` lists a model. It changes no replica."""

    name: ServedName | None = Field(
        None, description="the model name that clients send, without commas; default: the model key, if it has none")
    path: UrlPath = Field("/v1", description="the path of the API on an endpoint")
    groups: list[str] | None = Field(None, description="only these worker groups; default: all")
    weight: Weight = Field(1, description="the weight of each endpoint, for load balancers that support weights")


class Cold(Authored):
    """Nodes to keep a model's weights on disk. A minimum, like replicas: nothing is removed from other nodes."""

    nodes: Selector = Field(description="nodes with these labels; {} = every node")


class Shape(ModelDefaults):
    """What several models have in common: worker groups, and values for models that do not set them."""

    model: Numbers | None = Field(None, description="what the model is, as numbers; docs/memory.md")
    workers: Workers = Field(description="the worker groups of one replica; $(FLEETCTL_MODEL) is the key of the model")


class ShapeUse(Authored):
    """A shape, and one model's differences from it."""

    name: ShapeName = Field(description="one of spec.shapes")
    workers: list[WorkerGroup] = Field(
        default_factory=list, description="the differences, merged into the groups of the shape as a file is into the "
                                          "one it extends; only names are required")


def _one_of_kinds(schema: dict[str, Any], model: type[Model] | type[Variant]) -> None:
    """Require exactly one of KINDS: who is read with a shape has the workers of it."""
    schema["required"] = [key for key in schema["required"] if key != "workers"]
    schema["properties"]["workers"].pop("default", None)
    schema["anyOf"] = [_with_values(kind) for kind in model.KINDS]
    schema["not"] = {"anyOf": [_with_values(*pair) for pair in combinations(model.KINDS, 2)]}


def _with_values(*keys: str) -> dict[str, Any]:
    """Return the schema of an object with these keys; one without a value is not set."""
    return {"required": list(keys), "properties": {key: {"not": {"type": "null"}} for key in keys}}


MAX_VARIANTS = 16


class Variant(Authored):
    """One way to run a model: worker groups and a placement of its own. The rest is the model's; docs/variants.md."""

    KINDS: ClassVar[tuple[str, ...]] = ("workers", "shape")
    model_config = ConfigDict(json_schema_extra=_one_of_kinds)

    name: DnsLabel = Field(description="a DNS label, unique in its model")
    min: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] = Field(
        0, description="a minimum of this variant alone, within or beyond the model's replicas")
    max: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] | None = Field(
        None, description="the most replicas of this variant that plans create, running ones included; default: no "
                          "limit")
    weight: Weight | None = Field(
        None, description="the weight of each of its endpoints; default: serving.weight of the model. It changes no "
                          "replica")
    model: Numbers | None = Field(None, description="what the model is in this variant, as numbers; docs/memory.md")
    shape: Annotated[Annotated[ShapeName, TEXT] | Annotated[ShapeUse, MAPPING], TEXT_OR_MAPPING] | None = Field(
        None, description="one of spec.shapes, instead of workers; it gives a variant workers, placement and model")
    placement: Placement = Field(default_factory=Placement, description="where the members of one replica may run")
    workers: Workers = Field(description="the worker groups of one replica; set either this or shape")


ABSENT: Any = ()
"""No value of a file equals it."""


def _unless_in_variants(workers: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:  # noqa: ANN401
    """Let a model with variants have no workers of its own."""
    if workers is not ABSENT:
        return check(workers)
    if info.data.get("variants", ABSENT) is None:  # absent, too; an invalid value is a problem of its own
        raise PydanticKnownError("missing")
    return []


class Model(ModelDefaults):
    """One model: the minimum number of replicas, and the shape of each, written out or by name, or several variants."""

    KINDS: ClassVar[tuple[str, ...]] = ("workers", "shape", "variants")
    model_config = ConfigDict(json_schema_extra=_one_of_kinds)

    key: ModelKey
    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] = Field(
        description="a minimum, never a maximum: missing replicas are created, surplus ones are kept; 0 = no target")
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="owner and purpose, such as team: nlp; matched by --selector and by quotas, "
                                          "not part of the spec")
    model: Numbers | None = Field(None, description="what the model is, as numbers; docs/memory.md")
    shape: Annotated[Annotated[ShapeName, TEXT] | Annotated[ShapeUse, MAPPING], TEXT_OR_MAPPING] | None = Field(
        None, description="one of spec.shapes, instead of workers; the model's own keys override those of the shape")
    variants: Annotated[list[Variant], Field(min_length=1, max_length=MAX_VARIANTS)] | None = Field(
        None, description="several ways to run it, the preferred one first, instead of workers; docs/variants.md")
    workers: Annotated[Workers, WrapValidator(_unless_in_variants)] = Field(
        ABSENT, validate_default=True, description="the worker groups of one replica; set either this, shape or "
                                                   "variants")
    serving: Serving = Field(default_factory=Serving, description="how its endpoints are listed")
    cold: Cold | None = Field(
        None, description="the nodes that keep its weights on disk; not part of the spec")

    @property
    def alternatives(self) -> Sequence[Model | Variant]:
        """The ways to run it, the preferred one first: its variants, or itself if it has none."""
        return self.variants or (self,)


class Reserve(Authored):
    """Resources kept free on every card."""

    vram: Bytes = Field(0, description="memory kept free on every card")


class Resident(Authored):
    """What may use memory of each card beside replicas: a display server, a daemon that keeps weights."""

    memory: Bytes = Field(description="the memory of each card that belongs to it")
    process: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="its process by name, or a word of its command line; what another process uses counts as in "
                          "use. Absent = whatever it is")


class NodePolicy(Authored):
    """Settings of the selected nodes; later entries win key by key."""

    selector: Selector = Field(default_factory=dict, description="no selector = every node")
    max_replicas_per_model: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] | None = Field(
        None, description="slots per model and node; default: the node's label fleet.io/replica-slots, else no cap for "
                          "models that claim GPU or VRAM, 1 for others")
    reserve: Reserve | None = Field(None, description="kept free on every card")
    gpu_memory: Bytes | None = Field(None, description="memory of each card, if the cluster cannot report it")
    residents: Annotated[list[Resident], Field(max_length=MAX_CARDS)] | None = Field(
        None, description="what may use memory of each card beside replicas; plans subtract it, and offer whole cards "
                          "that nothing else uses")
    cordon: bool | None = Field(None, description="place no new replicas on these nodes")
    warm: Bytes | None = Field(
        None, description="the most memory on each of these nodes for the weights of WARM replicas; default: half of "
                          "the node's memory in Ray")
    weights_ports: Ports | None = Field(
        None, description="the ports at which members there serve their weights to other nodes, one each: FIRST-LAST, "
                          "or none = they serve no weights; default: any free port")
    price: Price | None = Field(
        None, description="what each of these nodes costs an hour, in any unit, the same in the whole fleet; "
                          "docs/price.md")


class Cluster(Authored):
    """The cluster; --address, --context and FLEETCTL_ADDRESS override it."""

    address: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="http(s)://host:8265 = Ray dashboard; auto or host:port = a local Ray")
    namespace: Annotated[str, Field(min_length=1)] = Field("fleet", description="Ray namespace of the replicas")
    grow: Annotated[list[GrowType], Field(max_length=64)] = Field(
        default_factory=list, description="the nodes that Ray's autoscaler may add for replicas that fit nowhere else; "
                                          "docs/kubernetes.md")


class Quota(Authored):
    """The most that all models with certain labels may use together: live replicas, and those a plan adds."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["gpus"]}, {"required": ["replicas"]}]})

    selector: Selector = Field(default_factory=dict, description="labels of models; no selector = every model")
    gpus: GpuSum | None = Field(None, description="the most GPUs of all their replicas together")
    replicas: Annotated[int, Field(ge=0, le=10**9)] | None = Field(
        None, description="the most replicas of all of them together")

    @model_validator(mode="after")
    def _limits_something(self) -> Quota:
        if self.gpus is None and self.replicas is None:
            raise refusal("quota_without_limit", "{found} limits nothing", "this quota", "gpus, replicas or both")
        return self


class Cooldown(Authored):
    """How long a spec or node that keeps failing is left alone; docs/failures.md."""

    failures: Annotated[int, Field(ge=0, le=1000)] = Field(
        3, description="consecutive failures that start a cooldown; 0 = nothing cools down")
    first: Seconds = Field(300, description="the first cooldown; each further failure doubles it")
    max: Seconds = Field(3600, description="the longest cooldown")


class Pilot(Authored):
    """How many replicas of a spec that never ran start first, before the others; docs/pilot.md."""

    replicas: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="how many start first; the others follow once one of them is ready")
    over: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(
        3, description="up to this many new replicas of a spec start at once, without a pilot; at least `replicas`")

    @model_validator(mode="after")
    def _is_fewer(self) -> Pilot:
        if self.replicas > self.over:
            raise refusal("pilot_of_all", "replicas is larger than over, so all new ones would be pilots", "this pilot",
                          "at most as many replicas as over")
        return self


class Policy(Authored):
    """Limits of one plan, and house rules. plan and apply exit with 4 if a limit is broken."""

    max_new_replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] | None = Field(
        None, description="the most replicas one plan may create; a threshold, which --force lifts")
    max_new_gpus: GpuSum | None = Field(
        None, description="the most GPUs of all new replicas of one plan; a threshold, which --force lifts")
    max_change_percent: Annotated[int, Field(ge=0, le=10_000)] | None = Field(
        None, description="new replicas per hundred live ones, checked with 10 or more live; a threshold, which "
                          "--force lifts")
    protected_models: Annotated[list[str], Field(max_length=MAX_PROTECTED)] = Field(
        default_factory=list, description="model keys, or patterns with *; no plan creates a replica of these models")
    allowed_selectors: dict[LabelKey, list[Expression]] | None = Field(
        None, description="the labels that a nodeSelector may use, each with the allowed values; an empty list = any "
                          "value")
    quotas: Annotated[list[Quota], Field(max_length=MAX_QUOTAS)] = Field(
        default_factory=list, description="the most that models with certain labels may use together; new replicas "
                                          "over it are blocked with QUOTA, and nothing is removed")
    cooldown: Cooldown = Field(
        default_factory=Cooldown, description="when a spec or node that keeps failing is left alone for a while")
    pilot: Pilot | None = Field(
        None, description="of a spec that never ran, a few replicas start first, and the others once one of these is "
                          "ready; absent = all start at once")
    schemas: Annotated[list[FileName], Field(max_length=MAX_SCHEMAS)] = Field(
        default_factory=list, description="house rules: JSON Schema files (draft 2020-12), relative to this file, "
                                          "that the rendered fleet must match")


def _check_keep_for(seconds: float) -> float:
    if seconds < MIN_KEPT_S:  # whoever follows a run reads its log for a while after its end
        raise refusal("absurd_quantity", "{found} is out of range; expected {allowed}", seconds, "at least 1h")
    return seconds


class History(Authored):
    """How long the cluster keeps the ended runs that `fleetctl history` lists; docs/history.md."""

    keep_runs: Annotated[int, Field(ge=1, le=100_000)] = Field(
        1000, description="the newest runs of the fleet that are kept, whatever their age")
    keep_for: Annotated[Seconds, AfterValidator(_check_keep_for)] = Field(
        7 * 86_400, description="the age up to which all other runs are kept, too: 1h to 30d; older ones are deleted")


def matches_pattern(pattern: str, key: str) -> bool:
    """Return whether an entry of `protectedModels` names a model: its key, or a pattern that matches it.

    Only `*` is special, since keys may contain `?` and `[`; case matters, as in keys.
    """
    return pattern == key or fnmatchcase(key, "".join(f"[{char}]" if char in "?[" else char for char in pattern))


class FleetSpec(Authored):
    """Models and policies. Several files add up their nodes, shapes and models; any other key is set once."""

    cluster: Cluster | None = Field(None, description="the cluster, once per fleet")
    policy: Policy | None = Field(None, description="limits of one plan, and house rules, once per fleet")
    history: History | None = Field(None, description="how long ended runs are kept, once per fleet")
    defaults: ModelDefaults | None = Field(
        None, description="values for every model that does not set them, once per fleet")
    nodes: list[NodePolicy] = Field(default_factory=list, description="node policies, in order")
    shapes: dict[ShapeName, Shape] = Field(
        default_factory=dict, description="shapes by name, which models use with shape; each once per fleet")
    models: list[Model] = Field(default_factory=list, description="the models and their targets")


class Metadata(Authored):
    """The fleet's name, the same in all its files."""

    name: DnsLabel = Field(description="the fleet's name; a DNS label")


class FleetDocument(Authored):
    """One document of a fleet file."""

    api_version: Literal["fleetctl/v1"] = Field(description="the version of this format")
    kind: Literal["Fleet"] = Field(description="always Fleet")
    extends: Annotated[
        Annotated[FileName, TEXT] | Annotated[list[FileName], Field(min_length=1, max_length=16), LIST], TEXT_OR_LIST
    ] | None = Field(
        None, description="the fleet files that this one builds on, relative to it; merged by model key, group name "
                          "and role, and the later one wins")
    metadata: Metadata = Field(description="the fleet that this document belongs to")
    spec: FleetSpec = Field(description="the fleet: its models and policies")
