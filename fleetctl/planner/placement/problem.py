"""The placement problem in compact form: equal demands, and equal nodes, form classes.

A fleet of 1,000 models and 10,000 nodes is often a few hundred classes of demand over a few dozen classes of nodes. The
bound, the exact tier and the patterns all work on classes; only the ledger knows single nodes. Classes are sorted by
content, never by place in a file, so that reordering a fleet file cannot change how much is placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from fleetctl.planner.placement.claims import GroupShape, Kind, ReplicaShape
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.ledger.candidates import nodes_by_selector
from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.policies import NO_CAP

Domains = tuple[tuple[str, str | None], ...]
"""(label, value) pairs; None = without the label."""
Held = tuple[tuple[str, int], ...]
"""(model key, slots in use) pairs."""


class Gang(NamedTuple):
    """A group of a replica: `copies` gangs, each made of `parts` (kind number, members of that kind)."""

    parts: tuple[tuple[int, int], ...]
    copies: int
    domain_label: str
    """All members of one gang share one value of this label; "" = anywhere, also for a gang of one, unless its whole
    replica must share a value."""
    per_node: int
    """How many members of one gang may share a node; irrelevant for a gang of one."""

    @property
    def size(self) -> int:
        """The number of ranks in one gang."""
        return sum(count for _, count in self.parts)


class SpreadLimit(NamedTuple):
    """At most `most` replicas of a model may touch one value of a label; `left` = how many more, by value."""

    label: str
    most: int
    per_node: bool
    """Each node has a value of its own, so the limit acts like a slot cap."""
    left: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DemandClass:
    """Models whose replicas are interchangeable: one shape, one priority, no cap that distinguishes them."""

    demands: tuple[Demand, ...]
    priority: int
    gangs: tuple[Gang, ...]
    gpu_units: int
    """The GPU share of one replica in 1/10000; members that claim VRAM alone count as 0."""
    capped: bool
    """Some node caps the replicas of a model, or its spread has a limit; such a class is a single model."""
    limit: SpreadLimit | None = None
    is_variant: bool = False
    """One way of a model to run, with limits of its own; such a class is one variant of a single model."""

    @property
    def units(self) -> int:
        """What a replica counts in the objective, in 1/10000 of a card."""
        return self.demands[0].units

    @property
    def shape(self) -> ReplicaShape:
        """The shape of one replica, taken from the first model."""
        return self.demands[0].shape

    @property
    def missing(self) -> int:
        """The number of missing replicas that it may take."""
        return sum(demand.at_most for demand in self.demands)

    @property
    def model_missing(self) -> int:
        """The number of missing replicas of all variants of its models."""
        return sum(demand.missing for demand in self.demands)

    @property
    def least(self) -> int:
        """How many replicas this variant should get at least."""
        return min(self.missing, sum(demand.least for demand in self.demands))

    @property
    def unserved(self) -> int:
        """The number of models without a live replica."""
        return sum(demand.live == 0 and demand.missing > 0 for demand in self.demands)

    @property
    def value_limit(self) -> SpreadLimit | None:
        """The limit of its spread if several nodes share a value; else None."""
        return None if self.limit is None or self.limit.per_node else self.limit

    def in_turn(self, count: int) -> Iterator[Demand]:
        """Yield the model of each of `count` replicas: first one for each model without any, then in file order."""
        left = {model.place: model.at_most for model in self.demands}
        for model in self.demands:
            if model.live == 0 and count:
                left[model.place] -= 1
                count -= 1
                yield model
        for model in self.demands:
            for _ in range(min(count, left[model.place])):
                yield model
            count -= min(count, left[model.place])

    def members(self) -> dict[int, int]:
        """Return the number of members of each kind in one replica."""
        counts: dict[int, int] = {}
        for gang in self.gangs:
            for kind, count in gang.parts:
                counts[kind] = counts.get(kind, 0) + count * gang.copies
        return counts


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Open nodes that are equal for all demands: same offer, same kinds allowed, same domains, same caps."""

    nodes: tuple[int, ...]
    offer: Offer
    allowed: frozenset[int]
    """Kinds whose selector allows these nodes."""
    domains: Domains
    """(label, value) for each label that binds a gang or limits a spread.

    If it only matters whether a node has the label, the value is "".
    """
    caps: tuple[int, int]
    """Slot caps for models without and with GPU or VRAM; NO_CAP = none."""
    held: Held
    """The slots that capped models hold here."""

    def free_slots(self, demand: DemandClass) -> int:
        """Return how many more replicas of a class may touch one of these nodes."""
        cap, limit, held = self.caps[demand.shape.wants_cards], demand.limit, dict(self.held)
        free = cap if cap >= NO_CAP else max(0, cap - held.get(demand.shape.key, 0))
        if limit is None:
            return free
        value = self.domain(limit.label)
        if value is None:
            return 0
        return min(free, max(0, limit.most - held.get(demand.shape.key, 0)) if limit.per_node else limit.left[value])

    def domain(self, label: str) -> str | None:
        """Return the value of a domain label on these nodes; None = without the label."""
        return dict(self.domains).get(label)


@dataclass(frozen=True, slots=True)
class WantedClasses:
    """Classes of demand, highest priority first, and the kinds of their members."""

    kinds: tuple[Kind, ...]
    demands: tuple[DemandClass, ...]
    number_of: Mapping[Kind, int]
    """The number of each kind."""

    @property
    def priorities(self) -> tuple[int, ...]:
        """The priorities of the demands, high to low."""
        return tuple(dict.fromkeys(demand.priority for demand in self.demands))

    @property
    def has_variants(self) -> bool:
        """Whether some model has several variants."""
        return any(one.variant for demand in self.demands for one in demand.demands)

    @property
    def alternatives(self) -> list[tuple[int, ...]]:
        """The classes of each model with several variants, by number."""
        together: dict[int, list[int]] = {}
        for number, demand in enumerate(self.demands):
            if demand.is_variant:
                together.setdefault(demand.demands[0].place, []).append(number)
        return [tuple(numbers) for numbers in together.values() if len(numbers) > 1]


@dataclass(frozen=True, slots=True)
class Problem(WantedClasses):
    """Classes of demand over classes of nodes, for a ledger in its present state."""

    ledger: Ledger
    nodes: tuple[NodeClass, ...]


def group_of(shape: ReplicaShape, gang: int, problem: Problem) -> GroupShape:
    """Return the group of a shape that corresponds to gang number `gang` of its class."""
    return _in_class_order(shape, problem.number_of)[gang][1]


def state_demand(demands: Sequence[Demand], ledger: Ledger) -> WantedClasses:
    """Group demands with missing replicas into classes."""
    missing = [demand for demand in demands if demand.at_most > 0]
    kinds = tuple(sorted({kind for demand in missing for kind in demand.shape.kinds}))
    number_of = {kind: number for number, kind in enumerate(kinds)}
    return WantedClasses(kinds, _demand_classes(missing, number_of, ledger), number_of)


def state_problem(demands: Sequence[Demand], ledger: Ledger) -> Problem:
    """Group demands with missing replicas, and the open nodes of `ledger`, into classes."""
    return with_nodes(state_demand(demands, ledger), ledger)


def with_nodes(wanted: WantedClasses, ledger: Ledger) -> Problem:
    """Return the problem of placing `wanted` on the open nodes of `ledger`."""
    nodes = _node_classes(wanted.kinds, wanted.demands, ledger)
    return Problem(wanted.kinds, wanted.demands, wanted.number_of, ledger, nodes)


NO_VARIANT = -1


class _Likeness(NamedTuple):
    """Demands with equal values form one class; sorts by content."""

    minus_priority: int
    gangs: tuple[Gang, ...]
    key: str
    """The model, if a cap, the limit of its spread or its variants distinguish it; else ""."""
    as_one: bool
    variant: int
    """The variant of the model, by its place in order of preference; NO_VARIANT = it has none."""


def _demand_classes(wanted: Sequence[Demand], number_of: Mapping[Kind, int], ledger: Ledger) -> tuple[DemandClass, ...]:
    together: dict[_Likeness, list[Demand]] = {}
    ways = Counter(demand.place for demand in wanted)
    for demand in wanted:
        is_variant = ways[demand.place] > 1 or bool(demand.variant or demand.least) or demand.most is not None
        key = demand.shape.key if is_variant or ledger.tells_apart(demand.shape) else ""
        gangs = tuple(gang for gang, _ in _in_class_order(demand.shape, number_of))
        likeness = _Likeness(-demand.priority, gangs, key, demand.shape.as_one,
                             demand.variant if is_variant else NO_VARIANT)
        together.setdefault(likeness, []).append(demand)
    return tuple(
        DemandClass(tuple(sorted(group, key=lambda one: (one.place, one.shape.key))), group[0].priority,
                    likeness.gangs, group[0].shape.gpu_units, ledger.tells_apart(group[0].shape),
                    _spread_limit(group[0].shape, ledger), likeness.variant != NO_VARIANT)
        for likeness, group in sorted(together.items(), key=itemgetter(0))
    )


def _spread_limit(shape: ReplicaShape, ledger: Ledger) -> SpreadLimit | None:
    if shape.spread is None or shape.spread.most is None:
        return None
    label, most = shape.spread.label, shape.spread.most
    nodes: dict[str, list[int]] = {}
    for place, node in enumerate(ledger.nodes):
        if node.open and label in node.labels:
            nodes.setdefault(node.labels[label], []).append(place)
    crowd = ledger.crowd(shape.key)
    # a closed node may have the same value and hold running replicas
    per_node = all(len(places) == 1 and crowd.get(value, 0) == ledger.slots(places[0], shape.key).bit_count()
                   for value, places in nodes.items())
    return SpreadLimit(label, most, per_node, {value: max(0, most - crowd.get(value, 0)) for value in nodes})


def _in_class_order(shape: ReplicaShape, number_of: Mapping[Kind, int]) -> list[tuple[Gang, GroupShape]]:
    gangs = []
    for group in shape.groups:
        parts = tuple(sorted((number_of[kind], count) for kind, count in group.classes().items()))
        label = shape.same_label or "" if group.size > 1 or shape.as_one else ""
        gangs.append((Gang(parts, group.copies, label, 1 if group.size == 1 else group.most_ranks), group))
    return sorted(gangs, key=itemgetter(0))


def _node_classes(kinds: Sequence[Kind], demands: Sequence[DemandClass], ledger: Ledger) -> tuple[NodeClass, ...]:
    selectors = sorted({selector for _, selector in kinds})
    allows = nodes_by_selector(ledger, selectors)
    packed = np.packbits(allows, axis=1)
    rows, width = packed.tobytes(), packed.shape[1]
    limits = [demand.limit for demand in demands if demand.limit is not None]
    labels = sorted({gang.domain_label for demand in demands for gang in demand.gangs if gang.domain_label}
                    | {limit.label for limit in limits if not limit.per_node})
    labels_to_have = sorted({limit.label for limit in limits if limit.per_node}.difference(labels))
    held: dict[int, Held] = {}
    for key in sorted({demand.shape.key for demand in demands if demand.capped}):
        for place, slots in ledger.slots_of(key).items():
            held[place] = (*held.get(place, ()), (key, slots.bit_count()))
    caps_of: dict[int, tuple[int, int]] = {}
    # nodes of one class: equal number of the offer, selectors (a row of bits), domains, caps, slots in use
    together: dict[tuple[int, bytes, Domains, tuple[int, int], Held], list[int]] = {}
    for place, (node, number) in enumerate(zip(ledger.nodes, ledger.numbers, strict=True)):
        if node.open:
            caps = caps_of.get(id(node.policy))  # nodes with equal policies share one object
            if caps is None:
                caps = caps_of[id(node.policy)] = node.policy.cap_for(False).limit, node.policy.cap_for(True).limit
            domains = tuple([(label, node.labels.get(label)) for label in labels])
            domains += tuple([(label, "" if label in node.labels else None) for label in labels_to_have])
            row = rows[place * width:(place + 1) * width]
            together.setdefault((number, row, domains, caps, held.get(place, ())), []).append(place)
    column = {selector: number for number, selector in enumerate(selectors)}
    columns = [column[selector] for _, selector in kinds]
    first = {row: places[0] for (_, row, *_), places in together.items()}
    allowed = {row: frozenset(np.flatnonzero(allows[place][columns]).tolist()) for row, place in first.items()}
    return tuple(NodeClass(tuple(places), ledger.numbered(number), allowed[row], domains, caps, held_here)
                 for (number, row, domains, caps, held_here), places in together.items())
