"""What if: plans the fleet as it is and with hypothetical changes, and compares the two plans.

Both are ordinary plans by `make_plan`, so the answer is what `plan` would print after such changes.

The loss of each node (N-1): what it would cost, after the plan is applied and without moving anything else. Nodes that
are equal in everything relevant (their offer, the labels that models use, what runs on them, and the same for the other
nodes of their gangs) have the same answer, so it is computed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from fleetctl.documents.answers import (
    Change,
    Counts,
    LostModel,
    ModelChange,
    NewReplica,
    NodeLoss,
    PriceChange,
    VariantChange,
    VariantLoss,
    WhatIf,
)
from fleetctl.documents.plan import Blocked, ModelRow, Plan
from fleetctl.documents.quantity import grouped
from fleetctl.errors import UsageError
from fleetctl.planner.growth import Growing
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.demand import Demand, Option
from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.occupants import Occupant
from fleetctl.planner.placement.pack import pack
from fleetctl.planner.placement.reasons.explain import explain
from fleetctl.planner.questions.changes import CORDON_LABEL, Changes, changed, without_nodes
from fleetctl.planner.questions.new_node import hardware
from fleetctl.planner.questions.scenario import Scenario
from fleetctl.planner.variants import demands_of_each, folded, full_entry, shapes_of

ModelVariant = tuple[str, str]
"""A model, and the name of one of its variants; "" for a model without any."""


def what_if(scenario: Scenario, changes: Changes, *, each_node: bool = False) -> WhatIf:
    """Compare today's plan with the plan after `changes`; `each_node` adds the effect of losing each node.

    Raises UsageError if there are no changes or a name is unknown, InventoryError for an incomplete inventory.
    """
    if not changes and not each_node:
        raise UsageError("no change is given, so there is nothing to compare",
                         hint="use --lose-node, --cordon, --add-node, --scale or --each-node")
    before = scenario.plan()
    supposed, made = changed(scenario, changes)
    after = supposed.plan() if changes else before
    waiting = [{one.model: one.on_new_nodes for one in plan.blocked} for plan in (before, after)]
    rows = [_model(old, new, model.replicas, *(found.get(old.key, 0) for found in waiting))
            for old, new, model in zip(before.models, after.models, supposed.fleet.models, strict=True)]
    losses = lose_each(supposed, after) if each_node else None
    unplaced = losses is not None and any(model.missing for loss in losses for model in loss.models)
    return WhatIf(
        fleet=scenario.fleet.name, inventory=scenario.about(), changes=made, models=rows,
        before=_total(row.before for row in rows), after=_total(row.after for row in rows),
        price=PriceChange(before=before.price, after=after.price) if before.price and after.price else None,
        unmanaged_lost=_unmanaged_on(scenario, made), created=[
            NewReplica(model=one.model, replica_id=one.replica_id, variant=one.variant, members=one.members)
            for one in after.starts],
        blocked=[_named(one, supposed) for one in after.blocked], growth=after.growth,
        certificate=after.certificate, each_node=losses, exit_code=3 if unplaced else after.exit_code,
    )


def _model(old: ModelRow, new: ModelRow, target: int, old_on_new: int, new_on_new: int) -> ModelChange:
    """Return the fate of one model's lost replicas; replicas that `--scale` adds do not count as missing.

    `target` = its `replicas` after the changes, without what the minimums of variants ask for beyond them.
    `old_on_new`, `new_on_new` = blocked replicas that would run on new nodes, before and after.
    """
    lost = max(0, old.live - new.live)
    each = list(zip(old.variants, new.variants, strict=True))
    of_minimums = sum(max(0, min(was.live - one.live, one.least - one.live)) for was, one in each)
    needed = min(lost, max(0, target - new.live, of_minimums))
    more_blocked = new.blocked - old.blocked - max(0, new.wanted - old.wanted)
    if each and new.wanted == old.wanted:  # what lacked to a minimum before may count toward the target now
        more_blocked = max(more_blocked, needed - max(0, new.create - old.create))
    missing = min(needed, max(0, more_blocked))
    return ModelChange(key=new.key, before=_counts(old, old_on_new), after=_counts(new, new_on_new), lost=lost,
                       replaced=needed - missing, surplus=lost - needed, missing=missing, variants=[
                           VariantChange(name=one.name, before=was.live + was.create, after=one.live + one.create)
                           for was, one in each])


def _counts(row: ModelRow, on_new: int) -> Counts:
    return Counts(wanted=row.wanted, live=row.live, create=row.create, blocked=row.blocked, on_new_nodes=on_new)


def _total(counts: Iterable[Counts]) -> Counts:
    rows = list(counts)
    return Counts(**{name: sum(getattr(row, name) for row in rows) for name in Counts.model_fields})


def _unmanaged_on(scenario: Scenario, changes: Sequence[Change]) -> list[str]:
    """Return the replicas on lost nodes that this fleet does not manage; `scenario` is the one before the changes."""
    names = {name for change in changes if change.op == "loseNode" for name in change.nodes}
    found = scenario.occupants(scenario.opened())
    lost = {place for place, node in enumerate(found.nodes) if node.name in names}
    return [one.name for one in found.replicas if not one.counted and lost.intersection(one.places)]


def _named(blocked: Blocked, scenario: Scenario) -> Blocked:
    """Replace the name of the policy that --cordon adds by the flag, since no file has that policy."""
    ours = f"spec.nodes[{len(scenario.fleet.policies) - 1}].cordon"
    if not any(CORDON_LABEL in policy.selector for policy in scenario.fleet.policies):
        return blocked
    reasons = [one.model_copy(update={"need": one.need.replace(ours, "--cordon")}) for one in blocked.reasons]
    return blocked.model_copy(update={"message": blocked.message.replace(ours, "--cordon"), "reasons": reasons})


def lose_each(scenario: Scenario, plan: Plan) -> list[NodeLoss]:
    """Return the effect of losing each node that is not dead, worst first; `plan` is the plan of `scenario`."""
    losses = _Losses(scenario, plan)
    nodes = losses.ledger.nodes
    equal = grouped((losses.equality_key(place), place) for place, node in enumerate(nodes) if node.state != "DEAD")
    return sorted((NodeLoss(  # computed for the first of equal nodes
        hardware=losses.hardware[places[0]], nodes=[nodes[place].name for place in places],
        models=losses.models(places[0]), unmanaged=losses.unmanaged(places[0])) for places in equal.values()),
        key=_worst_first)


def _worst_first(loss: NodeLoss) -> tuple[int, int, str]:
    missing, lost = (sum(getattr(model, name) for model in loss.models) for name in ("missing", "lost"))
    return -missing, -lost, loss.nodes[0]


class _Losses:
    """The scenario with the plan applied to its ledger, for computing the loss of each node.

    `have` = the replicas that run or are planned, by model and variant; `waiting` = those that wait for new nodes, by
    model; `labels` = all labels that models use; `hardware` is indexed by node.
    """

    def __init__(self, scenario: Scenario, plan: Plan) -> None:
        self.scenario, self.ledger = scenario, scenario.ledger()
        self.ways = shapes_of(scenario.fleet, scenario.inventory)
        self.occupants = scenario.occupants(self.ledger, plan)
        self.have = Counter((one.model, one.variant) for one in self.occupants.replicas if one.counted)
        self.labels = sorted(_used_labels(shape for ways in self.ways.values() for shape in ways))
        self.hardware = [hardware(node) for node in self.occupants.nodes]
        self.waiting = Counter({row.model: row.on_new_nodes for row in plan.blocked if row.on_new_nodes})

    def content(self, place: int) -> Counter[ModelVariant]:
        """Return how many replicas of each model and variant a node has."""
        return Counter((one.model, one.variant) for one in self._on(place))

    def _on(self, place: int) -> list[Occupant]:
        """Return the replicas on a node that count toward a target."""
        return [one for one in self.occupants.on(place) if one.counted]

    def unmanaged(self, place: int) -> int:
        """Return how many replicas on a node do not count toward a target."""
        return len(self.occupants.here(place)) - len(self._on(place))

    def equality_key(self, place: int) -> Hashable:
        """Return a key that only nodes with the same answer share."""
        others = self._others(place)
        order = {other: number for number, other in enumerate(others)}
        gangs = tuple((one.model, tuple(order.get(other, -1) for other in one.places)) for one in self._spanning(place))
        after = tuple((self._features(other), self._freed(place, other)) for other in others)
        return self._features(place), gangs, after

    def _features(self, place: int) -> Hashable:
        node = self.ledger.nodes[place]
        caps = node.policy.cap_for(False).limit, node.policy.cap_for(True).limit
        return (self.hardware[place], self.ledger.numbers[place], node.open, caps, self.unmanaged(place),
                tuple(node.labels.get(label) for label in self.labels), frozenset(self.content(place).items()))

    def _spanning(self, place: int) -> list[Occupant]:
        """Return the gangs on a node that end completely without it, other fleets' included; see `without_nodes`."""
        return [one for one in self.occupants.on(place) if len(one.places) > 1 and (one.ours or one.fleet is not None)]

    def _others(self, place: int) -> list[int]:
        """Return the other nodes of the gangs on a node, in a fixed order."""
        return [other for other in dict.fromkeys(other for one in self._spanning(place) for other in one.places)
                if other != place]

    def _freed(self, place: int, other: int) -> Offer:
        """Return the offer of another node after the gangs on the lost one have ended; unchanged if it is not open."""
        if not self.ledger.nodes[other].open:
            return self.ledger.offer(other)
        gangs = {id(one) for one in self._spanning(place)}
        gone = [number for number in self.occupants.here(other) if id(self.occupants.replicas[number]) in gangs]
        return self.occupants.offer_without(other, gone, sure=False)[0]

    def models(self, place: int) -> list[LostModel]:
        """Return the effect of losing a node on each model with replicas there."""
        content = self.content(place)
        lost = _by_model(content)
        demands = [demand for demand in self._demands(content) if demand.missing]
        ledger = self.ledger.copied(
            dead=place, offers={other: self._freed(place, other) for other in self._others(place)},
            ended=[(one.model, one.places) for one in self._on(place)])
        of_each = _placed(demands, ledger)
        placed = Counter({demand.shape.key: 0 for demand in demands})
        for demand in demands:
            placed[demand.shape.key] += of_each[demand.option]
        needed = {demand.shape.key: demand.missing for demand in demands}
        short = Counter(needed) - placed
        beside = self.have - content + Counter({
            (demand.shape.key, demand.model_in(self.scenario.fleet.models).variant): of_each[demand.option]
            for demand in demands})
        on_new = self._on_new(short, beside, place, ledger)
        found = []
        for number, model in enumerate(self.scenario.fleet.models):
            key = model.key
            if lost[key]:
                created = [of_each[number, at] for at in range(len(model.alternatives))]
                code, message = self._why([one for one in demands if one.place == number], beside, short[key],
                                          ledger) if short[key] else (None, "")
                found.append(LostModel(
                    model=key, lost=lost[key], replaced=placed[key], surplus=lost[key] - needed.get(key, 0),
                    missing=short[key], on_new_nodes=on_new[key], code=code, message=message,
                    variants=[VariantLoss(name=one.variant, lost=content[key, one.variant], replaced=new)
                              for one, new in zip(model.variants, created, strict=False)]))
        return found

    def _why(self, demands: Sequence[Demand], beside: Counter[ModelVariant], short: int, ledger: Ledger
             ) -> tuple[str, str]:
        """Return why `short` more replicas of one model fit nowhere `beside` those that there are."""
        model, entries = self.scenario.fleet.models[demands[0].place], list[tuple[int, Blocked]]()
        for demand in demands:
            one = model.alternatives[demand.variant]
            count = beside[model.key, one.variant]
            if one.most is not None and count >= one.most:
                entries.append((demand.variant, full_entry(model, demand.variant, count, 0, short)))
            else:
                code, message = explain(demand.shape, Placer(ledger))[:2]
                entries.append((demand.variant, Blocked(model=model.key, replicas=short, code=code, message=message)))
        found = folded(model, entries)
        return found.code, found.message

    def _on_new(self, missing: Counter[str], beside: Counter[ModelVariant], place: int, ledger: Ledger) -> Counter[str]:
        """Return how many of each model would run on added nodes, beside the replicas that already wait for such."""
        fleet = self.scenario.fleet
        if not fleet.cluster.grow or not missing.total():
            return Counter()
        both = [demand for number, model in enumerate(fleet.models)
                if (count := missing[model.key] + self.waiting[model.key])
                for demand in self._ways_of(number, count, count, beside)]
        left = without_nodes(self.scenario.inventory, {self.ledger.nodes[place].id})
        growing = Growing(fleet.cluster.grow, fleet.policies, left, ledger)
        return (growing.most_on_new(both) - self.waiting) & missing

    def _demands(self, content: Counter[ModelVariant]) -> Iterable[Demand]:
        """Yield the lost replicas that the targets need; all others count, whatever their spec, even in an update."""
        lost, left = _by_model(content), self.have - content
        have = _by_model(left)
        for number, model in enumerate(self.scenario.fleet.models):
            if lost[model.key]:
                below = max(0, model.replicas - have[model.key])
                keys = [(model.key, one.variant) for one in model.variants]
                of_minimums = sum(max(0, min(content[key], one.least - left[key]))
                                  for key, one in zip(keys, model.variants, strict=True))
                yield from self._ways_of(number, min(lost[model.key], max(below, of_minimums)), below, left)

    def _ways_of(self, number: int, missing: int, below: int, beside: Counter[ModelVariant]) -> list[Demand]:
        """Return a demand for each variant of a model, which share what is missing; `below` = below the target."""
        model = self.scenario.fleet.models[number]
        shapes, live = self.ways[model.key], _by_model(beside)[model.key]
        if not model.variants:
            return [Demand(shapes[0], missing, live, model.priority, number)]
        each = [beside[model.key, one.variant] for one in model.variants]
        return demands_of_each(
            model, shapes, number, missing=missing, live=live, below=below,
            lacking=[max(0, one.least - count) for one, count in zip(model.variants, each, strict=True)],
            room=[max(0, (one.most or 0) - count) for one, count in zip(model.variants, each, strict=True)])


def _by_model(counts: Counter[ModelVariant]) -> Counter[str]:
    found = Counter[str]()
    for (model, _), count in counts.items():
        found[model] += count
    return found


def _placed(demands: Sequence[Demand], ledger: Ledger) -> Counter[Option]:
    """Return how many of each demand can be placed; the packer runs only if a simple first pass does not place all."""
    if any(demand.variant for demand in demands):
        return Counter(one.demand.option for one in pack(demands, Placer(ledger)).placed)
    mark, placer = ledger.mark(), Placer(ledger)
    for demand in sorted(demands, key=lambda one: (-one.shape.gpu_units, -one.shape.size, one.place)):
        if any(placer.place(demand.shape) is None for _ in range(demand.at_most)):
            ledger.undo(mark)
            return Counter(one.demand.option for one in pack(demands, Placer(ledger)).placed)
    return Counter({demand.option: demand.at_most for demand in demands})


def _used_labels(shapes: Iterable[ReplicaShape]) -> set[str]:
    used: set[str] = set()
    for shape in shapes:
        used |= {key for selector in shape.selectors for key, _ in selector.labels}
        used |= {label for label in (shape.same_label, shape.spread and shape.spread.label) if label}
    return used
