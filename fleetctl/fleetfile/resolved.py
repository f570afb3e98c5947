"""A loaded fleet: valid files merged, defaults merged into each model, every model with its spec hash and its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from fleetctl.documents.canonical import canonical_json, sha256_hex
from fleetctl.documents.engine import PERIODS_S
from fleetctl.documents.fleet import (
    Cluster,
    FleetDocument,
    History,
    HttpReload,
    ModelDefaults,
    NodePolicy,
    Placement,
    Policy,
    Restart,
    Serving,
    Update,
    Variant,
    WorkerGroup,
)
from fleetctl.documents.position import FleetSource, Path, Position
from fleetctl.documents.selector import in_one_spelling
from fleetctl.problem import Problem

if TYPE_CHECKING:
    from fleetctl.documents.model import Description
    from fleetctl.fleetfile.model_numbers import KnownModels
    from fleetctl.fleetfile.nodes import Document


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """One model with defaults merged. `spec_hash` covers the meaning of workers and placement, except `weights.from`.

    `former_hash` = the hash that earlier versions of fleetctl made of their spelling; live replicas may still carry it.
    `startup_by_default` = no file sets its startup timeout, which then grows with the `loaded_bytes` of its weights, or
    with the `longest_start_s` of its starts.
    `dedicated` = new replicas take whole cards, even if the file claims a share.
    `cold` = the labels of the nodes that keep its weights on disk; None = no node does.
    `surge` = the number of replicas beyond the target that an update may create beside outdated ones; 0 = another mode.
    `reload` = the requests that make engines load other weights in place; none = another mode.
    `engine_hash` = the hash of everything except index and view of the weights; None = no weights.
    `description` = what the model is, as numbers, if the file says so; `blocks_too_large` = a replica that certainly
    does not fit on a card is blocked, else a warning.

    `variants` = the ways to run it, preferred first, each a model of its own with its name in `variant`, its workers,
    placement and hashes, and everything else of the model; none = it has one way, without a name. A model with variants
    has itself the workers and hashes of the first one. `least`, `most` = the `min` and `max` of a variant. `weight` =
    that of a variant's endpoints, if it has its own.
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
    reload: tuple[HttpReload, ...] = ()
    engine_hash: str | None = None
    dedicated: bool = False
    startup_by_default: bool = False
    loaded_bytes: int = 0
    longest_start_s: float = 0
    cold: Mapping[str, str] | None = None
    description: Description | None = None
    blocks_too_large: bool = True
    variant: str = ""
    least: int = 0
    most: int | None = None
    weight: int | None = None
    variants: tuple[ResolvedModel, ...] = ()

    @property
    def asked_for(self) -> int:
        """How many replicas the file asks for: its target, or the minimums of its variants if these are more."""
        return max(self.replicas, sum(one.least for one in self.variants))

    @property
    def gpus_asked_for(self) -> int:
        """The GPUs of these, in 1/10000: as many of each variant as its minimum, and the rest as the first one."""
        least = sum(one.least for one in self.variants)
        return sum(one.least * one.gpus for one in self.variants) + (self.asked_for - least) * self.gpus

    @property
    def gpus(self) -> int:
        """The GPUs that one replica claims, in 1/10000; members that claim only VRAM count as 0."""
        return sum(group.copies * (member.count or 1) * member.resources.gpus
                   for group in self.workers for member in group.members)

    @property
    def alternatives(self) -> tuple[ResolvedModel, ...]:
        """The ways to run it, preferred first: its variants, or itself if it has none."""
        return self.variants or (self,)

    @property
    def is_wanted(self) -> bool:
        """Whether the file wants any replica of it, by its target or by the minimum of a variant."""
        return self.replicas > 0 or any(one.least for one in self.variants)

    def with_changes(self, **changes: Any) -> ResolvedModel:  # noqa: ANN401  as `dataclasses.replace`
        """Return it with other values of fields that its variants share with it."""
        return self.with_each(lambda one: replace(one, **changes))

    def with_each(self, change: Callable[[ResolvedModel], ResolvedModel]) -> ResolvedModel:
        """Return it with `change` made to each way to run it."""
        variants = tuple(change(one) for one in self.variants)
        return in_variants(variants, self.source) if variants else change(self)

    def has_spec(self, spec_hash: str | None) -> bool:
        """Return whether a replica with this hash was started with a spec of this model, of any variant."""
        return any(spec_hash in (one.spec_hash, one.former_hash) for one in self.alternatives)

    def variant_of(self, spec_hash: str | None, name: str | None) -> int | None:
        """Return the place of the variant that a replica with this hash and this name of a variant in its mark runs.

        The hash decides; a name alone is that of an outdated replica. None = of no variant that the file still has.
        """
        alike = [place for place, one in enumerate(self.alternatives)
                 if spec_hash in (one.spec_hash, one.former_hash)]
        named = [place for place, one in enumerate(self.alternatives) if name and one.variant == name]
        return next(iter([*(place for place in alike if place in named), *alike, *named]), None)

    def variant_name(self, spec_hash: str | None, name: str | None) -> str:
        """Return the name of that variant; `name` itself if the file no longer has it; "" for a model without any."""
        if not self.variants:
            return ""
        place = self.variant_of(spec_hash, name)
        return name or "" if place is None else self.variants[place].variant


def in_variants(variants: Sequence[ResolvedModel], source: Position) -> ResolvedModel:
    """Return the model at `source` that runs in these variants: all that it has itself is the first one's."""
    return replace(variants[0], variant="", least=0, most=None, weight=None, variants=tuple(variants),
                   source=source)


@dataclass(frozen=True, slots=True)
class ResolvedFleet:
    """One fleet, from all its files; models and node policies in argument order, then file order.

    `policy_places` = the place of each key set in `policy` and of each entry below it, by its name in the file:
    `quotas`, `quotas[1]`, `allowedSelectors[pool]`. `house_rules` = the files named by `policy.schemas`, in order;
    `descriptions` = those of models.
    `history` is None if no file sets it. `warnings` = the problems of its files.
    """

    name: str
    cluster: Cluster
    policies: tuple[NodePolicy, ...]
    models: tuple[ResolvedModel, ...]
    files: tuple[FleetSource, ...]
    policy: Policy = field(default_factory=Policy)
    policy_places: Mapping[str, Position] = field(default_factory=dict)
    house_rules: tuple[FleetSource, ...] = ()
    descriptions: tuple[FleetSource, ...] = ()
    history: History | None = None
    warnings: tuple[Problem, ...] = field(default=(), compare=False)

    @property
    def labels(self) -> dict[str, Mapping[str, str]]:
        """The labels of each model, by model key."""
        return {model.key: model.labels for model in self.models}

    @property
    def has_prices(self) -> bool:
        """Whether it says what any node costs."""
        return any(policy.price is not None for policy in self.policies) or any(
            one.price is not None for one in self.cluster.grow)

    def only_creating(self, changed: Mapping[str, ResolvedModel]) -> ResolvedFleet:
        """Return the fleet with these models `changed`, by key, for a plan that only creates replicas of them.

        They reload nothing in place, and no node fetches weights: the next apply of the file does.
        """
        return replace(self, models=tuple(
            changed.get(model.key, model).with_changes(reload=() if model.key in changed else model.reload, cold=None)
            for model in self.models))


SPEC_HASH_DIGITS = 16
NOT_HASHED = (("weights", "from"), ("engine", "stop"))
"""The keys of a member that the spec hash does not cover: the index identifies the files, and how an engine is ended
does not change what it serves."""

_Settings = TypeVar("_Settings", bound=BaseModel)


def resolve(checked: Sequence[tuple[Document, FleetDocument]], files: Sequence[FleetSource],
            house_rules: Sequence[FleetSource] = (), warnings: Sequence[Problem] = (), known: KnownModels | None = None
            ) -> ResolvedFleet:
    """Merge documents that passed every rule. `files` = the files they come from; `house_rules` = the schema files;
    `known` = what is known of the models.
    """
    specs = [model.spec for _, model in checked]
    defaults = next((spec.defaults for spec in specs if spec.defaults is not None), ModelDefaults())
    models = []
    for document, fleet in checked:
        for index, model in enumerate(fleet.spec.models):
            chosen, update = merged(defaults, model), merged(defaults.update, model.update)
            placement = merged(defaults.placement, model.placement)
            path: Path = ("spec", "models", index)
            ways = []
            for place, way in enumerate(model.alternatives):
                own = merged(placement, way.placement) if way is not model else placement
                ways.append(ResolvedModel(
                    key=model.key, replicas=model.replicas, priority=chosen.priority,
                    startup_timeout_s=chosen.startup_timeout, scheduling_timeout_s=chosen.scheduling_timeout,
                    restart=merged(defaults.restart, model.restart), placement=own, workers=tuple(way.workers),
                    spec_hash=hash_of_shape(shape_as_set(way.workers, own)),
                    source=document.position((*path, "variants", place) if model.variants else path),
                    serving=model.serving, labels=model.labels, cold=model.cold.nodes if model.cold else None,
                    former_hash=former_hash(way.workers, own), engine_hash=engine_hash(way.workers, own),
                    surge=update.surge if update.mode == "surge" else 0,
                    startup_by_default="startup_timeout" not in defaults.model_fields_set | model.model_fields_set,
                    description=known.description(model, way) if known else None,
                    blocks_too_large=chosen.memory_check == "block",
                    reload=_requests(update) if update.mode == "inPlace" else (),
                    variant=way.name if isinstance(way, Variant) else "",
                    least=way.min if isinstance(way, Variant) else 0,
                    most=way.max if isinstance(way, Variant) else None,
                    weight=way.weight if isinstance(way, Variant) else None))
            models.append(in_variants(ways, document.position(path)) if model.variants else ways[0])
    return ResolvedFleet(
        name=checked[0][1].metadata.name,
        cluster=next((spec.cluster for spec in specs if spec.cluster is not None), Cluster()),
        policies=tuple(policy for spec in specs for policy in spec.nodes),
        models=tuple(models),
        files=tuple(files),
        policy=next((spec.policy for spec in specs if spec.policy is not None), Policy()),
        policy_places={name: document.position(("spec", "policy", *steps))
                       for document, fleet in checked if fleet.spec.policy is not None
                       for key, value in document.value["spec"]["policy"].items()
                       for name, steps in ((key, (key,)), *((f"{key}[{entry}]", (key, entry)) for entry in (
                           value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ())))
                       },
        house_rules=tuple(house_rules),
        descriptions=tuple(known.files) if known else (),
        history=next((spec.history for spec in specs if spec.history is not None), None),
        warnings=tuple(warnings),
    )


def spec_document(model: ResolvedModel) -> dict[str, Any]:
    """Return the shape of one replica in the form of a plan: all defaults filled in, integer amounts, seconds."""
    workers = [group.as_json() for group in model.workers]
    for member in (member for group in workers for member in group["members"]):
        if member["role"] == "Worker":
            member.setdefault("count", 1)
        for kind in PERIODS_S.keys() & member["engine"].keys():
            member["engine"][kind].setdefault("period", PERIODS_S[kind])
    return {"workers": workers, "placement": model.placement.as_json()}


def shape_as_set(workers: Sequence[WorkerGroup], placement: Placement) -> dict[str, Any]:
    """Return the shape as the user set it, in canonical spelling. It is the input of the spec hash, and of `import`.

    Values equal to their default are left out, so the defaults of these fields must never change.
    """
    written = [group.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
               for group in workers]
    for group in written:
        for member in group["members"]:
            if member.get("count") == 1:
                del member["count"]
            if (readiness := member["engine"].get("readiness", {})).get("period") == PERIODS_S["readiness"]:
                del readiness["period"]
            if "nodeSelector" in member:
                member["nodeSelector"] = in_one_spelling(member["nodeSelector"])
    return {"workers": written,
            "placement": placement.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)}


def hash_of_shape(as_set: Mapping[str, Any], *, as_spelled: bool = False) -> str:
    """Return the spec hash of a `shape_as_set`, without NOT_HASHED.

    A liveness period of 1 s is left out: it was the default when running replicas got their hash. `as_spelled` = the
    shape is as spelled in the file, which has only what is written there.
    """
    workers = [{**group, "members": [{**member} for member in group["members"]]} for group in as_set["workers"]]
    for member in (member for group in workers for member in group["members"]):
        for part, left_out in NOT_HASHED:
            if left_out in (member.get(part) or ()):
                member[part] = {key: value for key, value in member[part].items() if key != left_out}
        liveness = member["engine"].get("liveness", {})
        if liveness.get("period") == 1 and not as_spelled:
            former = {key: value for key, value in liveness.items() if key != "period"}
            member["engine"] = {**member["engine"], "liveness": former}
    return sha256_hex(canonical_json({**as_set, "workers": workers}))[:SPEC_HASH_DIGITS]


def engine_hash(workers: Sequence[WorkerGroup], placement: Placement) -> str | None:
    """Return the hash of a shape regardless of which weights its members have; None if no member has weights."""
    if not any(member.weights for group in workers for member in group.members):
        return None
    shape = shape_as_set(workers, placement)
    for group in shape["workers"]:
        group["members"] = [{**member, "weights": {}} if "weights" in member else member
                            for member in group["members"]]
    return hash_of_shape(shape)


def former_hash(workers: Sequence[WorkerGroup], placement: Placement) -> str:
    """Return the spec hash that earlier versions of fleetctl computed, over the shape as spelled in the file."""
    return hash_of_shape({"workers": [_as_spelled(group) for group in workers], "placement": _as_spelled(placement)},
                         as_spelled=True)


def _requests(update: Update) -> tuple[HttpReload, ...]:
    steps = update.reload if isinstance(update.reload, list) else [update.reload] if update.reload else []
    return tuple(step.http for step in steps)


def merged(defaults: _Settings, own: _Settings) -> _Settings:
    """Return `defaults` with the keys that `own` sets replaced by its values."""
    chosen = own.model_fields_set & type(defaults).model_fields.keys()
    return defaults.model_copy(update={name: getattr(own, name) for name in chosen})


def _as_spelled(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
