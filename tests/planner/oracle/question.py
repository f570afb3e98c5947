"""The oracle's input: missing replicas and free resources, from a fleet and an inventory.

Made from the documents and the simulated cluster of the tests; shares no code with the planner. Models that ask for
the same claim at the same priority are one `Ask`: their replicas are interchangeable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

from checker import Crowds, crowded_values
from simulated import SimNode, live_replicas, selects, simulate

from fleetctl.documents.fleet import SameLabel, Spread, WorkerGroup
from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel


class Want(NamedTuple):
    """A member's claim and selector: `gpus`, `cpus` in 1/10000, `vram` bytes per card, `memory` bytes."""

    gpus: int
    vram: int
    cpus: int
    memory: int
    selector: tuple[tuple[str, str], ...]


class Gang(NamedTuple):
    """`copies` gangs of one replica, each of `parts`: (want, count)."""

    parts: tuple[tuple[Want, int], ...]
    copies: int
    label: str
    """All members are inside one value of this label; empty = anywhere."""
    per_node: int

    @property
    def size(self) -> int:
        return sum(count for _, count in self.parts)


@dataclass(frozen=True)
class Ask:
    """Interchangeable models: the number of missing replicas, and of models without any replica."""

    keys: tuple[str, ...]
    priority: int
    gangs: tuple[Gang, ...]
    missing: int
    unserved: int
    capped: bool
    """A node may run out of slots for it; such an ask has a single model."""
    label: str = ""
    """The label of a spread with a limit, empty without one; an ask with a label has a single model."""
    room: tuple[tuple[str, int], ...] = ()
    """How many more replicas may touch each value."""
    as_one: str = ""
    """All gangs of a replica are inside one value of this label; empty = no such rule."""
    variant: int = 0
    """Its place in order of preference among the variants of its model."""
    least: int = 0
    """How many of its replicas count like first ones: what its variant lacks of its own minimum."""
    counted: int | None = None
    """What a replica counts, in 1/10000 of a card; None = what it takes."""
    together: int | None = None
    """The missing replicas of all variants of its model; None = the model has no variants."""
    target: int = 0
    """Of those, what the target asks for: what minimums ask for beyond it is no reason for more than these of any."""
    priced: bool = False
    """Its price counts: its model has a choice of variants, and each node that could hold a member has a price."""

    @property
    def counts(self) -> int:
        return self.units if self.counted is None else self.counted

    @property
    def units(self) -> int:
        """The GPU share of one replica, in 1/10000."""
        return sum(map(_units, self.gangs))

    @property
    def size(self) -> int:
        return sum(gang.size * gang.copies for gang in self.gangs)

    @property
    def wants_cards(self) -> bool:
        return any(want.gpus or want.vram for gang in self.gangs for want, _ in gang.parts)


@dataclass(frozen=True)
class Question:
    """Everything the oracle needs. `live` = the fleet's own live replicas, by model."""

    asks: tuple[Ask, ...]
    nodes: tuple[SimNode, ...]
    live: dict[str, int]
    price: dict[tuple[Want, str], int] = field(default_factory=dict)
    """What a member of a priced ask costs, by node id, in 1/10000 of steps; the dearest card costs 10,000 of them."""

    @property
    def priorities(self) -> list[int]:
        return sorted({ask.priority for ask in self.asks}, reverse=True)


def ask_about(fleet: ResolvedFleet, inventory: Inventory) -> Question:
    """Return the question that a plan for `fleet` on `inventory` answers."""
    nodes = tuple(node for node in simulate(inventory, fleet.policies, fleet.name, None).values() if node.takes_new)
    live = _live(fleet, inventory)
    together: dict[tuple[object, ...], list[ResolvedModel]] = {}
    for model in fleet.models:
        if model.variants:
            continue
        if model.replicas > live[model.key]:
            gangs = _gangs(model)
            capped = _capped(model, gangs, nodes, model.replicas - live[model.key])
            own = model.key if capped or isinstance(model.placement.spread, Spread) else ""
            together.setdefault((model.priority, gangs, own, capped, _as_one(model)), []).append(model)
    crowds = crowded_values(fleet, inventory, None)
    asks = []
    for (priority, gangs, _, capped, as_one), models in together.items():
        label, room = _room(models[0], nodes, crowds)
        asks.append(Ask(
            tuple(model.key for model in models), priority, gangs,
            sum(model.replicas - live[model.key] for model in models),
            sum(live[model.key] == 0 for model in models), bool(capped), label, room, as_one,
        ))
    varied = [ask for model in fleet.models if model.variants
              for ask in _variant_asks(model, live[model.key], inventory, nodes, crowds)]
    return _with_prices(Question((*asks, *varied), nodes, live), fleet)


STEPS = 10_000


def _with_prices(question: Question, fleet: ResolvedFleet) -> Question:
    """Set the prices of members, if they decide between variants."""
    price_of = {node.node.id: _node_price(fleet, node) for node in question.nodes}
    choice = {key for key, count in Counter(ask.keys for ask in question.asks if ask.together is not None).items()
              if count > 1}
    taken = {key: {(want, node.node.id): amount for ask in question.asks if ask.keys == key for gang in ask.gangs
                   for want, _ in gang.parts for node in question.nodes if allowed(want, node)
                   if (amount := _taken(want, node))} for key in choice}
    of_one = {node.node.id: None if (price := price_of[node.node.id]) is None else
              price / Fraction(node.node.resources.total.gpu or node.node.resources.total.cpu or 1)
              for node in question.nodes}
    dearest = max((of_one[node] or 0 for found in taken.values() for _, node in found), default=0)
    counted = {key: found for key, found in taken.items() if all(of_one[node] is not None for _, node in found)}
    if not dearest:
        return question
    price = {(want, node): round((of_one[node] or 0) * STEPS / dearest) * amount
             for found in counted.values() for (want, node), amount in found.items()}
    return replace(question, price=price,
                   asks=tuple(replace(ask, priced=ask.keys in counted) for ask in question.asks))


def _node_price(fleet: ResolvedFleet, node: SimNode) -> Fraction | None:
    """In millionths, as the last entry that selects the node says."""
    found = None
    for policy in fleet.policies:
        if policy.price is not None and selects(policy.selector, labels_of(node)):
            found = Fraction(policy.price)
    return found


def _taken(want: Want, node: SimNode) -> int:
    """The cards, or the CPUs of a node without any, that a member would take; 0 if the node is too small for it."""
    total = node.node.resources.total
    if not total.gpu:
        return 0 if want.gpus or want.vram or want.cpus > total.cpu * 10_000 else want.cpus
    largest = max((card.memory or 0 for card in node.cards), default=0)
    gpus = want.gpus or (min(10_000, -(-want.vram * 10_000 // largest)) if want.vram and largest else
                         10_000 if want.vram else 0)
    return 0 if gpus > total.gpu * 10_000 or (largest and want.vram > largest) else gpus


def _variant_asks(
    model: ResolvedModel, live: int, inventory: Inventory, nodes: tuple[SimNode, ...], crowds: Crowds
) -> Iterator[Ask]:
    """Yield one ask for each variant of a model; those that may take nothing are left out."""
    running = Counter(model.variant_of(replica.spec_hash, replica.variant) for replica in live_replicas(inventory)
                      if replica.model == model.key)
    least = [max(0, one.least - running[place]) for place, one in enumerate(model.variants)]
    below = max(0, model.replicas - live)
    missing = max(below, sum(least))
    for place, one in enumerate(model.variants):
        most = max(below, least[place])  # what another variant lacks is no reason for more of this one
        most = most if one.most is None else max(0, min(most, one.most - running[place]))
        if most:
            gangs = _gangs(one)
            label, room = _room(one, nodes, crowds)
            yield Ask((model.key,), model.priority, gangs, most, int(live == 0), _capped(one, gangs, nodes, missing),
                      label, room, _as_one(one), place, min(least[place], most),
                      sum(_units(gang) for gang in _gangs(model.variants[0])), missing, below)


def _units(gang: Gang) -> int:
    return sum(want.gpus * count * gang.copies for want, count in gang.parts)


def _room(model: ResolvedModel, nodes: tuple[SimNode, ...], crowds: Crowds) -> tuple[str, tuple[tuple[str, int], ...]]:
    spread = model.placement.spread
    if not isinstance(spread, Spread):
        return "", ()
    values = sorted({value for node in nodes if (value := labels_of(node).get(spread.label)) is not None})
    return spread.label, tuple((value, max(0, spread.max_per_value - crowds[model.key, value])) for value in values)


def _as_one(model: ResolvedModel) -> str:
    """The label that binds all members of a replica together; empty for a replica of one member."""
    bound = model.placement.same_label
    members = sum(group.copies * (member.count or 1) for group in model.workers for member in group.members)
    return bound.label if isinstance(bound, SameLabel) and members > 1 else ""


def _live(fleet: ResolvedFleet, inventory: Inventory) -> Counter[str]:
    return Counter(replica.model for replica in live_replicas(inventory)
                   if replica.fleet == fleet.name and replica.replica_id is not None and replica.level == "HOT")


def _gangs(model: ResolvedModel) -> tuple[Gang, ...]:
    return tuple(sorted(_gang(model, group) for group in model.workers))


def _gang(model: ResolvedModel, group: WorkerGroup) -> Gang:
    counts: Counter[Want] = Counter()
    for member in group.members:
        claim = member.resources
        selector = tuple(sorted(member.node_selector.items()))
        counts[Want(claim.gpus, claim.vram, claim.cpus, claim.memory, selector)] += member.count or 1
    parts = tuple(sorted(counts.items()))
    if counts.total() == 1:
        return Gang(parts, group.copies, "", 1)
    bound = model.placement.same_label
    label = bound.label if isinstance(bound, SameLabel) else bound or ""
    return Gang(parts, group.copies, label, model.placement.ranks_per_node)


def _capped(model: ResolvedModel, gangs: tuple[Gang, ...], nodes: tuple[SimNode, ...], missing: int) -> bool:
    cards = any(want.gpus or want.vram for gang in gangs for want, _ in gang.parts)
    return any((left := slots_left(node, model.key, wants_cards=cards)) is not None and left < missing
               for node in nodes)


def slots_left(node: SimNode, key: str, *, wants_cards: bool) -> int | None:
    """Return how many more replicas of a model may touch a node; None = any number."""
    cap = node.cap if node.cap is not None else None if wants_cards else 1
    return None if cap is None else max(0, cap - node.slots.get(key, 0))


def labels_of(node: SimNode) -> dict[str, str]:
    return {"ray.io/node-id": node.node.id, **node.node.labels}


def allowed(want: Want, node: SimNode) -> bool:
    """Return whether a member's selector matches a node."""
    return selects(dict(want.selector), labels_of(node))
