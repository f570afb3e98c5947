"""Capacity: how many more replicas of a model or shape would fit; where; and what prevents one more.

Each model or shape is counted by itself, on what is free now and on what the plan leaves, and no further than the
quotas of the fleet and the maximum of a variant allow. Every count is undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetctl.documents.answers import Capacity, CapacityRow, EqualNodes, Room
from fleetctl.documents.names import did_you_mean
from fleetctl.documents.plan import ModelRow
from fleetctl.documents.quantity import grouped
from fleetctl.errors import FleetctlError
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.planner.live import CLAIMED, NOT_TWICE, LiveState, ModelState
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.exact.bound import upper_bound
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.occupants import Occupant
from fleetctl.planner.placement.pack import pack
from fleetctl.planner.placement.reasons.explain import claims_text, explain
from fleetctl.planner.questions.new_node import hardware
from fleetctl.planner.questions.scenario import Scenario, most_new, take_planned, take_waiting, with_new_nodes
from fleetctl.planner.questions.shape_syntax import typed_shape
from fleetctl.planner.quotas import Quotas
from fleetctl.planner.variants import COUNTS_LAST, VARIANT_FULL, full_message, room_of, shapes_of, together

ALLOWED = "the quotas allow no more"
EACH_ALONE = "what each variant could have alone"
PACKED = 1_000
"""Up to this many replicas, the variants of a model are packed together if one after the other they may be too few."""
LIMIT = 100_000
"""Counting stops here: no fleet file may ask for more replicas of one model."""


def capacity(
    scenario: Scenario, *, models: Sequence[str] = (), shapes: Sequence[str] = (), limit: int = LIMIT
) -> Capacity:
    """Count how many more replicas of each of `models` and `shapes` fit; without either, of all models of the fleet.

    Raises UsageError for an unknown model or an invalid shape, InventoryError for an incomplete inventory.
    """
    state = scenario.sorted_out()
    chosen = _chosen(scenario, state, models, everything=not shapes)
    typed = [_Way(typed_shape(text)) for text in shapes]
    claims = {key: model.claim for key, model in state.models.items()}
    quotas = Quotas(scenario.fleet, state)
    now = _Counter(scenario, scenario.ledger(), limit, claims, quotas)
    after, grown, rows = None, None, dict[str, ModelRow]()
    if scenario.named:
        plan, ledger = scenario.plan(), scenario.ledger()
        new = take_planned(plan, ledger)
        quotas = quotas.beside((one.model, one.gpus) for one in new)
        after = _Counter(scenario, ledger, limit, claims, quotas, _of_variants(new))
        rows = {row.key: row for row in plan.models}
        if scenario.fleet.cluster.grow:  # with all nodes that may be added, the plan, and the replicas waiting for them
            whole = with_new_nodes(scenario, most_new(scenario))
            ledger = whole.ledger()
            take_planned(plan, ledger)
            waiting = take_waiting(whole, plan, ledger)
            quotas = quotas.beside((one.model, one.gpus) for one in waiting)
            grown = _Counter(whole, ledger, limit, claims, quotas, _of_variants([*new, *waiting]))
    return Capacity(
        fleet=scenario.named, inventory=scenario.about(), limit=limit,
        rows=[answer for ways in (*chosen, *((shape,) for shape in typed))
              for answer in _rows(ways, now, after, grown, rows.get(ways[0].shape.key))],
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """A shape; or one of a model's variants, how many are live, and how many more its maximum, if any, allows now."""

    shape: ReplicaShape
    variant: str = ""
    most: int | None = None
    live: int = 0
    more: int = 0


def _of_variants(new: Sequence[Occupant]) -> Counter[tuple[str, str]]:
    return Counter((one.model, one.variant) for one in new)


def _chosen(
    scenario: Scenario, state: LiveState, models: Sequence[str], *, everything: bool
) -> list[Sequence[_Way]]:
    """Return the ways to run each chosen model: its variants, the preferred one first."""
    shapes = shapes_of(scenario.fleet, scenario.inventory)
    for key in models:
        if key not in shapes:
            raise FleetctlError(f"--model {key}: the fleet file has no such model", hint=did_you_mean(key, shapes))
    return [_ways(model, state.models[model.key], shapes[model.key])
            for model in scenario.fleet.models if model.key in models or (everything and not models)]


def _ways(model: ResolvedModel, state: ModelState, shapes: Sequence[ReplicaShape]) -> list[_Way]:
    if not model.variants:
        return [_Way(shapes[0])]
    return [_Way(shape, one.variant, one.most, live, more) for shape, one, live, more in zip(
        shapes, model.variants, state.live_of_each(model), room_of(model, state), strict=True)]


def _rows(
    ways: Sequence[_Way], now: _Counter, after: _Counter | None, grown: _Counter | None, row: ModelRow | None
) -> Iterator[CapacityRow]:
    """Yield the row of a model or a shape; of several variants first all together, then each by itself."""
    typed = ways[0].shape.key.removeprefix("shape ") if row is None else None
    create, blocked = (row.create, row.blocked) if row else (None, None)
    several = row is not None and len(ways) > 1
    if row and several:
        yield CapacityRow(
            model=row.key, need=f"any of {', '.join(way.variant for way in ways)}", create=create, blocked=blocked,
            now=now.together(ways),
            after_plan=after.together(ways) if after else None,
            with_new_nodes=grown.together(ways) if grown else None)
    for number, way in enumerate(ways):
        yield CapacityRow(
            model=row.key if row else None, variant=way.variant if several else None, shape=typed,
            need=claims_text(way.shape), create=row.variants[number].create if row and several else create,
            blocked=None if several else blocked,
            now=now.room(way), after_plan=after.room(way) if after else None,
            with_new_nodes=grown.room(way) if grown else None)


@dataclass(slots=True)
class _Counter:
    """Counts on one ledger, and caches the answers: models with the same shape share one."""

    scenario: Scenario
    ledger: Ledger
    limit: int
    claims: Mapping[str, str]
    """Why models get no replicas while other fleets run them, by key."""
    quotas: Quotas
    """With the replicas on the ledger that do not run yet."""
    new: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many of those are of which model and variant."""
    _known: dict[ReplicaShape, Room] = field(default_factory=dict)
    _hardware: dict[str, str] = field(default_factory=dict)

    def room(self, way: _Way) -> Room:
        """Return how many more of a way fit, none if another fleet runs the model; the ledger is not changed."""
        shape = way.shape
        if claim := self.claims.get(shape.key):
            return Room(fits=0, at_most=0, status="optimal", method=NOT_TWICE, code=CLAIMED, message=claim)
        if self._limit_of(way) < self.limit:  # its maximum is its own
            return self._undone(way)
        own = self.quotas.limits(shape.key) or self.ledger.tells_apart(shape)
        alike = shape if own else replace(shape, key="")
        if alike not in self._known:
            self._known[alike] = self._undone(way)
        return self._known[alike]

    def together(self, ways: Sequence[_Way]) -> Room:
        """Return how many more replicas of a model fit over all its variants; the ledger is not changed.

        Those that take fewest GPUs fill up first. If that may be too few, all are packed, except within quotas.
        """
        key = ways[0].shape.key
        if self.claims.get(key):
            return self.room(ways[0])
        alone = min(self.limit, sum(self.room(way).at_most for way in ways))
        demands = [Demand(way.shape, alone, 1, 0, 0, variant=number, most=self._limit_of(way),
                          counted_units=ways[0].shape.gpu_units if number else None)
                   for number, way in enumerate(ways)]
        bound = upper_bound(demands, self.ledger)
        at_most, method = min((alone, EACH_ALONE), (bound.replicas, bound.method), key=lambda one: one[0])
        mark, found = self.ledger.mark(), self._in_turn(ways)
        if sum(room.fits for _, room in found) < at_most <= PACKED and not self.quotas.limits(key):
            self.ledger.undo(mark)
            placed = pack([replace(demand, missing=at_most) for demand in demands], Placer(self.ledger)).placed
            packed = [(way, self._room_of(way, _filled([one for one in placed if one.demand.variant == number])))
                      for number, way in enumerate(ways)]
            found = max(found, packed, key=lambda rooms: sum(room.fits for _, room in rooms))
        self.ledger.undo(mark)
        fits = min(self.limit, sum(room.fits for _, room in found))
        capped = fits >= self.limit
        codes = [room.code for _, room in found if room.code]
        return Room(
            fits=fits, at_most=at_most, method=method, capped=capped,
            status="optimal" if fits == at_most and not capped else "feasible",
            code=None if capped else next((code for code in codes if code not in COUNTS_LAST), codes[0]),
            message="" if capped else together([
                (way.variant, room.message) for way, room in sorted(found, key=lambda one: ways.index(one[0]))]),
            where=[place for _, room in found for place in room.where])

    def _in_turn(self, ways: Sequence[_Way]) -> list[tuple[_Way, Room]]:
        """Fill up with one variant after the other; they stay taken."""
        quotas, found = self.quotas, list[tuple[_Way, Room]]()
        for way in sorted(ways, key=lambda way: way.shape.gpu_units):
            found.append((way, self._count(way)))
            self.quotas = self.quotas.beside([(way.shape.key, way.shape.gpu_units)] * found[-1][1].fits)
        self.quotas = quotas
        return found

    def _limit_of(self, way: _Way) -> int:
        """Return how many more of a way may be counted."""
        return self.limit if way.most is None else max(0, min(self.limit, way.more - self._new_of(way)))

    def _new_of(self, way: _Way) -> int:
        return self.new[way.shape.key, way.variant]

    def _undone(self, way: _Way) -> Room:
        mark = self.ledger.mark()
        try:
            return self._count(way)
        finally:
            self.ledger.undo(mark)

    def _count(self, way: _Way) -> Room:
        shape, limit, mark = way.shape, self._limit_of(way), self.ledger.mark()
        filled = fill(shape, self.ledger, limit)
        count, quota = self.quotas.allow(shape, filled.gpus)
        while count < filled.replicas:  # again, since fewer replicas may take other cards, and so other shares
            self.ledger.undo(mark)
            equal = len({*filled.gpus}) == 1
            fewer = fill(shape, self.ledger, count)
            filled = replace(fewer, at_most=fewer.at_most if equal else filled.at_most, method=ALLOWED)
            count, now = self.quotas.allow(shape, filled.gpus)
            quota = now or quota  # of none, the share that one more needs is known from before
        return self._room_of(way, filled, quota)

    def _room_of(self, way: _Way, filled: Filled, quota: str = "") -> Room:
        """Return the room of a way that has taken what it could; `quota` = why the quotas allow no more."""
        new, capped, code, message = self._new_of(way) + filled.replicas, False, None, ""
        if way.most is not None and new >= way.more:
            code, message = VARIANT_FULL, full_message(way.most, way.live, new)
        elif filled.replicas >= self.limit:
            capped = True
        else:
            code, message = ("QUOTA", quota) if quota else explain(way.shape, Placer(self.ledger))[:2]
        return Room(
            fits=filled.replicas, at_most=filled.at_most, method=filled.method, capped=capped, code=code,
            status="optimal" if filled.replicas == filled.at_most and not capped else "feasible", message=message,
            where=self._where(filled, way.shape),
        )

    def _where(self, filled: Filled, shape: ReplicaShape) -> list[EqualNodes]:
        kinds, prices = self._kinds(), dict[int, int | None]()
        claims = {claim for claim, _ in shape.kinds}
        if self.scenario.fleet.has_prices and len(claims) == 1:
            from fleetctl.planner.placement.prices import price_of  # for fleets with prices

            prices = {place: price_of(min(claims), self._priced(self.ledger.nodes[place])) for place in filled.members}
        counts = [(place, self.ledger.nodes[place], count) for place, count in sorted(filled.members.items())]
        by_kind = grouped(((kinds[node.id], count, prices.get(place)), node.name) for place, node, count in counts)
        ordered = sorted(by_kind.items(), key=lambda item: (-item[0][1] * len(item[1]), item[0][:2], item[0][2] or 0))
        return [EqualNodes(hardware=kind, members_each=count, price=price, nodes=names)
                for (kind, count, price), names in ordered]

    def _priced(self, node: LedgerNode) -> LedgerNode:
        """Return a node with the price of its type, if it is a new one."""
        price = self.scenario.new_prices.get(node.id)
        return node if price is None else replace(node, policy=replace(node.policy, price=price))

    def _kinds(self) -> Mapping[str, str]:
        if not self._hardware:
            self._hardware = {node.id: hardware(node) for node in self.scenario.inventory.nodes}
        return self._hardware


@dataclass(frozen=True, slots=True)
class Filled:
    """How many replicas were taken, an upper bound, the number of members by node, and the GPUs of each replica."""

    replicas: int
    at_most: int
    method: str
    members: dict[int, int]
    gpus: list[int]


def fill(shape: ReplicaShape, ledger: Ledger, limit: int) -> Filled:
    """Take as many replicas of `shape` as fit, at most `limit`; they stay taken."""
    if _is_single(shape, ledger):
        return _fill_singly(shape, ledger, limit)
    demand = Demand(shape, limit, 1, 0, 0)
    bound = upper_bound([demand], ledger)
    limited = Demand(shape, min(limit, bound.replicas), 1, 0, 0)
    placed = pack([limited], Placer(ledger)).placed
    return replace(_filled(placed), at_most=min(limit, bound.replicas), method=bound.method)


def _filled(placed: Sequence[Placed]) -> Filled:
    members = Counter(assigned.node for one in placed for assigned in one.assignments)
    return Filled(len(placed), len(placed), "", dict(members), [one.gpus for one in placed])


def _is_single(shape: ReplicaShape, ledger: Ledger) -> bool:
    """Return whether each node can be filled by itself: one member, whose share of a card is the same on every card."""
    if shape.size != 1:
        return False
    (seat,) = shape.seats
    offers = map(ledger.offer, ledger.selected(seat.selector))
    return bool(seat.claim.gpus or not seat.claim.vram) or all(
        len({card.memory for card in offer.cards}) <= 1 for offer in offers)


def _fill_singly(shape: ReplicaShape, ledger: Ledger, limit: int) -> Filled:
    (seat,) = shape.seats
    members, gpus = dict[int, int](), list[int]()
    left = limit
    allowed = Placer(ledger).allowed(shape)
    for node in ledger.selected(seat.selector):
        count = 0
        while count < left and (allowed is None or allowed(node)) and (
                taken := ledger.take(node, seat.claim)) is not None:
            count += 1
            gpus.append(taken.gpus)
            if allowed is not None:  # without a cap, slots do not matter
                ledger.take_slots(shape.key, (node,))
        if count:
            members[node] = count
            left -= count
    return Filled(limit - left, limit - left, "each node counted by itself", members, gpus)
