"""Applies the breaker to a plan: how many replicas of a model it may create, on which nodes, and why not more.

Half open = one replica at a time: of a model, on a node, or of one model on one node, whichever cooled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetctl.documents.inventory import STARTING_STATES, Inventory, Replica
from fleetctl.documents.plan import Blocked
from fleetctl.documents.quantity import grouped, some
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.planner.breaker import IMAGE_MISSING, Cooled, Cooling, find_cooled, usable_nodes
from fleetctl.planner.failures import cooling_text, missing_image_text
from fleetctl.planner.live import ModelState, variant_of
from fleetctl.planner.placement.claims import Avoided
from fleetctl.planner.placement.demand import Demand, Missing, Option, Placed
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.policies import CoolingCard, CoolingCards

COOLING_DOWN, NODE_COOLING = "COOLING_DOWN", "NODE_COOLING"
ADVICE = "it is tried again then; earlier with --ignore-cooldown or a changed spec"
IMAGE_ADVICE = "pull the image on a node; with --ignore-cooldown it is then tried at once"
HELD_BACK = "has just failed in this apply"
LEFT_OUT = "a node that is not cooling (left out for this model)"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the breaker allows of the demands of one plan, by option: a model, or a variant of it.

    `most` = the most new replicas of models that cool, `why` = the reason. `avoided` = why a model avoids nodes, by
    their ids, ended cooldowns first; `tried` = those of them that may be tried with one replica. `closed` = why nodes
    take no new replicas of any model, by node id.
    """

    most: Mapping[Option, int] = field(default_factory=dict)
    why: Mapping[Option, str] = field(default_factory=dict)
    avoided: Mapping[Option, Mapping[str, str]] = field(default_factory=dict)
    tried: Mapping[Option, Sequence[str]] = field(default_factory=dict)
    closed: Mapping[str, str] = field(default_factory=dict)
    cards: Mapping[str, CoolingCards] = field(default_factory=dict)
    """The cards that take no new replica, or a single one, by node id."""
    nowhere: frozenset[Option] = frozenset()
    """Those for which every usable node is avoided or closed."""
    no_image: Mapping[Option, Mapping[str, str]] = field(default_factory=dict)
    """Why nodes lack the image of a model, by the node's id; these are in `avoided` too."""
    single_try: frozenset[str] = frozenset()
    """The nodes that are tried with one replica in all, of any model."""

    @property
    def tries(self) -> list[str]:
        """The ids of the nodes that may be tried."""
        return list(dict.fromkeys(node_id for nodes in self.tried.values() for node_id in nodes))

    def holding_back(self, demands: Iterable[Demand]) -> Limits:
        """Return these limits, and none of these demands: they have just failed."""
        options = [demand.option for demand in demands]
        return replace(self, most={**self.most, **dict.fromkeys(options, 0)},
                       why={**self.why, **dict.fromkeys(options, HELD_BACK)}) if options else self

    def narrowed(self, demand: Demand, but: Collection[str] = ()) -> Demand:
        """Return the demand without the nodes that its model avoids, `but` for these."""
        nodes = [Avoided(node_id, NODE_COOLING, LEFT_OUT)
                 for node_id in self.avoided.get(demand.option, ()) if node_id not in but]
        return replace(demand, shape=demand.shape.avoiding(nodes)) if nodes else demand

    def allowed(self, demands: Iterable[Demand]) -> list[Demand]:
        """Return the demands, limited to the number of replicas that may be tried.

        Other variants of a model take the place of one that cools, up to their own limits.
        """
        found, most = list(demands), Counter[int]()
        alone = {place for place, count in Counter(one.place for one in found).items() if count == 1}
        limited = [one if (limit := self.most.get(one.option)) is None else
                   replace(one, missing=min(one.missing, limit)) if one.place in alone else
                   replace(one, most=min(limit, one.missing if one.most is None else one.most)) for one in found]
        for one in limited:
            most[one.place] += one.missing if one.most is None else one.most
        return [replace(one, missing=most[one.place]) if one.missing > most[one.place] else one
                for one in limited if one.most != 0]

    def kept_off(
        self, model: ResolvedModel, option: Option, inventory: Inventory, taken: Collection[str]
    ) -> str:
        """Return which nodes that could take the model get no replica of it for now, and why; empty if there are none.

        `taken` = the ids of the nodes on which the plan places it.
        """
        own, tried = self.avoided.get(option, {}), {*self.tried.get(option, ())}
        by_reason = grouped((own.get(node.id) or self.closed[node.id], node.name)
                            for node in usable_nodes(model, inventory.nodes) if node.id not in taken
                            and ((node.id in own and node.id not in tried) or node.id in self.closed))
        return "; ".join(f"{some(sorted(names))} avoided: {why}" for why, names in by_reason.items())

    def waiting(self, key: str, replicas: int, option: Option) -> Blocked:
        """Return the entry of replicas that are not tried yet."""
        return Blocked(model=key, replicas=replicas, code=COOLING_DOWN, message=self.why[option], no_remedy=ADVICE)

    def explained(self, blocked: Blocked, option: Option, no_room: Collection[str]) -> Blocked:
        """Return replicas that found no room, with the breaker's reason if they avoid a node that might have had some.

        `no_room` = the nodes that were tried and had no room.
        """
        node_id, because = next((one for one in self.avoided.get(option, {}).items() if one[0] not in no_room),
                                ("", None))
        if because is None or not any(reason.code == NODE_COOLING for reason in blocked.reasons):
            return blocked
        why = self.why.get(option, because)
        no_image = why == self.no_image.get(option, {}).get(node_id)
        if blocked.code != NODE_COOLING and option not in self.nowhere:
            return blocked.model_copy(update={"message": f"{blocked.message}; {why}"})
        code, advice = (IMAGE_MISSING, IMAGE_ADVICE) if no_image else (COOLING_DOWN, ADVICE)
        return blocked.model_copy(update={"code": code, "message": why, "no_remedy": advice})


@dataclass(slots=True)
class Tries:
    """The replicas placed on tried nodes; `no_room` = those of the nodes without room, by option."""

    placed: list[Placed] = field(default_factory=list)
    no_room: dict[Option, set[str]] = field(default_factory=dict)


def try_nodes(
    limits: Limits, asked: Sequence[Demand], placed: Sequence[Placed], placer: Placer,
    within_quotas: Callable[[Sequence[Placed]], bool],
) -> Tries:
    """Put one replica that found no other room on each node that may be tried; `placed` is on the placer's ledger.

    `asked` = the demands that the breaker allows, before they are narrowed.
    """
    tries, missing, ledger = Tries(), Missing(asked, placed=placed), placer.ledger
    tried = {option: frozenset(nodes) for option, nodes in limits.tried.items()}
    narrowed = {demand.option: limits.narrowed(demand) for demand in asked}
    places = {node.id: place for place, node in enumerate(ledger.nodes)}
    for node_id in limits.tries:
        for demand in sorted(asked, key=lambda one: (
                -one.priority, one.live > 0 or not missing.misses_all(one), one.place, one.variant)):
            own = demand.option
            if node_id not in tried.get(own, ()) or not missing.of(demand):
                continue
            mark, seats = ledger.mark(), demand.shape.seats
            number = ledger.numbers[places[node_id]]
            if all(ledger.fit(number, claim) is None for claim, _ in demand.shape.kinds):
                found = None  # no member fits there, so the search over all nodes is spared
            elif len(seats) == 1:
                allowed = places[node_id] in ledger.selected(seats[0].selector)
                found = placer.take_at(demand.shape, {seats[0].position: places[node_id]}) if allowed else None
            else:
                found = placer.place(limits.narrowed(demand, [node_id]).shape)
            if found is None:
                tries.no_room.setdefault(own, set()).add(node_id)
            elif not within_quotas([*placed, *tries.placed, new := Placed(narrowed[own], found)]):
                ledger.undo(mark)
            else:
                tries.placed.append(new)
                missing.take(demand, 1)
                if node_id in limits.single_try:
                    for nodes in tries.no_room.values():
                        nodes.discard(node_id)
                    break
    return tries


def find_limits(
    fleet: ResolvedFleet, inventory: Inventory, demands: Sequence[Demand], states: Mapping[str, ModelState],
    *, reloads: bool = False,
) -> Limits:
    """Return what the breaker allows of the demands, or of in-place updates with `reloads`."""
    cooled = find_cooled(fleet, inventory, reloads=reloads) if inventory.failures else None
    if not cooled:
        return Limits()
    most, why = dict[Option, int](), dict[Option, str]()
    avoided, tried = dict[Option, dict[str, str]](), dict[Option, list[str]]()
    texts = {node_id: cooling_text(one, inventory) for node_id, one in cooled.nodes.items()}
    closed = {node_id: texts[node_id] for node_id, one in cooled.nodes.items() if not one.over}
    half_open = {node_id: one for node_id, one in cooled.nodes.items() if one.over}
    taken, nowhere = _starting(inventory.replicas), set[Option]()
    no_image = dict[Option, dict[str, str]]()
    for demand in demands:
        key, at, model = demand.shape.key, demand.option, demand.model_in(fleet.models)
        cooling, own = cooled.models.get((key, model.variant)), cooled.avoided.get((key, model.variant), {})
        if cooling is not None:
            starting = any(model.has_spec(one.spec_hash) and one.state in STARTING_STATES for one in states[key].live)
            most[at], why[at] = int(cooling.over and not starting), cooling_text(cooling, inventory)
        missing = cooled.no_image.get((key, model.variant), {})
        nodes: dict[str, Cooling] = {**half_open, **missing, **own}
        if not nodes:
            continue
        mine = _starting(one for one in states[key].live if variant_of(fleet.models[demand.place], one)
                         in (None, demand.variant))
        tried[at] = [node_id for node_id, one in nodes.items() if one.over and node_id not in mine
                     and not (node_id in half_open and node_id in taken)]
        no_image[at] = dict.fromkeys(
            missing.keys() - own.keys(), missing_image_text(missing.values(), inventory)) if missing else {}
        over_first = sorted(nodes.items(), key=lambda item: not item[1].over)
        avoided[at] = {
            node_id: cooling_text(one, inventory) if node_id in own else
            no_image[at].get(node_id) or texts[node_id] for node_id, one in over_first}
        if all(node.id in nodes or node.id in closed for node in usable_nodes(model, inventory.nodes)):
            nowhere.add(at)
    cards = _cards(cooled, inventory, taken)
    return Limits(most, why, avoided, tried, closed, cards, frozenset(nowhere), no_image, frozenset(half_open))


def _cards(cooled: Cooled, inventory: Inventory, taken: Collection[str]) -> dict[str, CoolingCards]:
    """Return the cooling cards by node id; after its cooldown a card takes one replica, unless its node is `taken`."""
    return {node.id: found for node in inventory.nodes if (found := tuple(
        CoolingCard(index, uuid, int(one.over and node.id not in taken), cooling_text(one, inventory))
        for index, uuid, one in cooled.on_node(node)))}


def _starting(replicas: Iterable[Replica]) -> set[str]:
    """Return the nodes on which some of these replicas are starting."""
    return {member.node_id for replica in replicas if replica.level == "HOT" and replica.state in STARTING_STATES
            for member in replica.members if member.node_id}
