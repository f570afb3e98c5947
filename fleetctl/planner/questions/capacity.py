"""Capacity: how many more replicas of a model or shape would fit; where; and what prevents one more.

Each model or shape is counted by itself, on what is free now and on what the plan leaves, and no further than the
quotas of the fleet allow. Every count is undone.
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
from fleetctl.planner.live import CLAIMED, NOT_TWICE
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.exact.bound import upper_bound
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.pack import pack
from fleetctl.planner.placement.reasons.explain import claims_text, explain
from fleetctl.planner.questions.new_node import hardware
from fleetctl.planner.questions.scenario import Scenario, most_new, take_planned, take_waiting, with_new_nodes
from fleetctl.planner.questions.shape_syntax import typed_shape
from fleetctl.planner.quotas import Quotas
from fleetctl.planner.variants import shapes_of

ALLOWED = "the quotas allow no more"
LIMIT = 100_000
"""Counting stops here: no fleet file may ask for more replicas of one model."""


def capacity(
    scenario: Scenario, *, models: Sequence[str] = (), shapes: Sequence[str] = (), limit: int = LIMIT
) -> Capacity:
    """Count how many more replicas of each of `models` and `shapes` fit; without either, of all models of the fleet.

    Raises UsageError for an unknown model or an invalid shape, InventoryError for an incomplete inventory.
    """
    chosen = _chosen(scenario, models, everything=not shapes)
    typed = [typed_shape(text) for text in shapes]
    state = scenario.sorted_out()
    claims = {key: model.claim for key, model in state.models.items()}
    quotas = Quotas(scenario.fleet, state)
    now = _Counter(scenario, scenario.ledger(), limit, claims, quotas)
    after, grown, rows = None, None, dict[str, ModelRow]()
    if scenario.named:
        plan, ledger = scenario.plan(), scenario.ledger()
        quotas = quotas.beside((one.model, one.gpus) for one in take_planned(plan, ledger))
        after, rows = _Counter(scenario, ledger, limit, claims, quotas), {row.key: row for row in plan.models}
        if scenario.fleet.cluster.grow:  # with all nodes that may be added, the plan, and the replicas waiting for them
            whole = with_new_nodes(scenario, most_new(scenario))
            ledger = whole.ledger()
            take_planned(plan, ledger)
            quotas = quotas.beside((one.model, one.gpus) for one in take_waiting(whole, plan, ledger))
            grown = _Counter(whole, ledger, limit, claims, quotas)
    return Capacity(
        fleet=scenario.named, inventory=scenario.about(), limit=limit,
        rows=[answer for ways in (*chosen, *((shape,) for shape in typed))
              for answer in _rows(ways, now, after, grown, rows.get(ways[0].key))],
    )


def _chosen(scenario: Scenario, models: Sequence[str], *, everything: bool) -> list[Sequence[ReplicaShape]]:
    """Return the shapes of each chosen model: those of its variants, the preferred one first."""
    shapes = shapes_of(scenario.fleet, scenario.inventory)
    for key in models:
        if key not in shapes:
            raise FleetctlError(f"--model {key}: the fleet file has no such model", hint=did_you_mean(key, shapes))
    return [ways for key, ways in shapes.items() if key in models or (everything and not models)]


def _rows(
    ways: Sequence[ReplicaShape], now: _Counter, after: _Counter | None, grown: _Counter | None, row: ModelRow | None
) -> Iterator[CapacityRow]:
    """Yield the row of a model or a shape; of several variants first all together, then each by itself."""
    names = [one.name for one in row.variants] if row and len(ways) > 1 else [None]
    typed = ways[0].key.removeprefix("shape ") if row is None else None
    create, blocked = (row.create, row.blocked) if row else (None, None)
    if row and len(ways) > 1:
        yield CapacityRow(
            model=row.key, need=f"any of {', '.join(name or '' for name in names)}", create=create, blocked=blocked,
            now=now.together(ways, names),
            after_plan=after.together(ways, names) if after else None,
            with_new_nodes=grown.together(ways, names) if grown else None)
    for number, (name, shape) in enumerate(zip(names, ways, strict=True)):
        yield CapacityRow(
            model=row.key if row else None, variant=name, shape=typed, need=claims_text(shape),
            create=row.variants[number].create if row and name else create, blocked=None if name else blocked,
            now=now.room(shape), after_plan=after.room(shape) if after else None,
            with_new_nodes=grown.room(shape) if grown else None)


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
    _known: dict[ReplicaShape, Room] = field(default_factory=dict)
    _hardware: dict[str, str] = field(default_factory=dict)

    def room(self, shape: ReplicaShape) -> Room:
        """Return how many more of `shape` fit, none if another fleet runs the model; the ledger is not changed."""
        if claim := self.claims.get(shape.key):
            return Room(fits=0, at_most=0, status="optimal", method=NOT_TWICE, code=CLAIMED, message=claim)
        own = self.quotas.limits(shape.key) or self.ledger.tells_apart(shape)
        alike = shape if own else replace(shape, key="")
        if alike not in self._known:
            mark = self.ledger.mark()
            try:
                self._known[alike] = self._count(shape)
            finally:
                self.ledger.undo(mark)
        return self._known[alike]

    def together(self, ways: Sequence[ReplicaShape], names: Sequence[str | None]) -> Room:
        """Return how many more replicas of a model fit over all its variants; the ledger is not changed.

        Those that take fewest GPUs fill up first. No packing has more than what each could have alone.
        """
        if len(ways) == 1 or self.claims.get(ways[0].key):
            return self.room(ways[0])
        mark, quotas, found = self.ledger.mark(), self.quotas, list[tuple[str | None, Room]]()
        try:
            for shape, name in sorted(zip(ways, names, strict=True), key=lambda way: way[0].gpu_units):
                found.append((name, self._count(shape)))
                self.quotas = self.quotas.beside([(shape.key, shape.gpu_units)] * found[-1][1].fits)
        finally:
            self.ledger.undo(mark)
            self.quotas = quotas
        fits = min(self.limit, sum(room.fits for _, room in found))
        at_most = min(self.limit, sum(self.room(shape).at_most for shape in ways))
        capped = fits >= self.limit
        return Room(
            fits=fits, at_most=at_most, method="what each variant could have alone", capped=capped,
            status="optimal" if fits == at_most and not capped else "feasible",
            code=None if capped else found[0][1].code,
            message="" if capped else "; ".join(f"{name}: {room.message}" for name, room in found if room.message),
            where=[place for _, room in found for place in room.where])

    def _count(self, shape: ReplicaShape) -> Room:
        mark = self.ledger.mark()
        filled = fill(shape, self.ledger, self.limit)
        count, quota = self.quotas.allow(shape, filled.gpus)
        while count < filled.replicas:  # again, since fewer replicas may take other cards, and so other shares
            self.ledger.undo(mark)
            equal = len({*filled.gpus}) == 1
            fewer = fill(shape, self.ledger, count)
            filled = replace(fewer, at_most=fewer.at_most if equal else filled.at_most, method=ALLOWED)
            count, now = self.quotas.allow(shape, filled.gpus)
            quota = now or quota  # of none, the share that one more needs is known from before
        capped = filled.replicas >= self.limit
        code, message = (None, "") if capped else ("QUOTA", quota) if quota else explain(shape, Placer(self.ledger))[:2]
        return Room(
            fits=filled.replicas, at_most=filled.at_most, method=filled.method, capped=capped, code=code,
            status="optimal" if filled.replicas == filled.at_most and not capped else "feasible", message=message,
            where=self._where(filled, shape),
        )

    def _where(self, filled: Filled, shape: ReplicaShape) -> list[EqualNodes]:
        kinds, prices = self._kinds(), dict[int, int | None]()
        claims = {claim for claim, _ in shape.kinds}
        if self.scenario.fleet.has_prices and len(claims) == 1:
            from fleetctl.planner.placement.prices import price_of  # for fleets with prices

            prices = {place: price_of(min(claims), self.ledger.nodes[place]) for place in filled.members}
        counts = [(place, self.ledger.nodes[place], count) for place, count in sorted(filled.members.items())]
        by_kind = grouped(((kinds[node.id], count, prices.get(place)), node.name) for place, node, count in counts)
        ordered = sorted(by_kind.items(), key=lambda item: (-item[0][1] * len(item[1]), item[0][:2], item[0][2] or 0))
        return [EqualNodes(hardware=kind, members_each=count, price=price, nodes=names)
                for (kind, count, price), names in ordered]

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
    members = Counter(assigned.node for one in placed for assigned in one.assignments)
    return Filled(len(placed), min(limit, bound.replicas), bound.method, dict(members),
                  [one.gpus for one in placed])


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
