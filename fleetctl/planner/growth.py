"""Finds the new nodes, by type, on which the autoscaler could make room for replicas that fit on no existing node.

The plan itself is made without them and does not change: nothing can be created on a node that does not exist. Each
type gets the fewest nodes with which as much fits as with its maximum; types later in the file are reduced first. If
types have prices, those nodes are chosen that cost least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from fleetctl.documents.fleet import GrowType, NodePolicy
from fleetctl.documents.inventory import Amounts, Gpu, Inventory, Node, NodeResources
from fleetctl.documents.plan import WAITS_FOR_NODES, Blocked, GrowingModel, Growth
from fleetctl.documents.quantity import SHARE, count_of, grouped
from fleetctl.planner.breaker import seconds
from fleetctl.planner.live import LiveState
from fleetctl.planner.placement.claims import ReplicaShape
from fleetctl.planner.placement.demand import Demand, Option, Placed
from fleetctl.planner.placement.greedy import pack_greedily
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.pack import Packing
from fleetctl.planner.placement.policies import effective_policy
from fleetctl.planner.placement.problem import state_problem
from fleetctl.planner.placement.reasons.node_shapes import NodeShape, fewest, ledger_with
from fleetctl.planner.quotas import Quotas, Totals, pack_within

AT_MAX = "MAX_NODES"
REPORTED_S = 60.0
"""How long the cards of a node may be unknown after it joined: Ray queries the driver only every few seconds."""
ADVICE = "an apply asks Ray's autoscaler for them, and with --wait-for-nodes waits until they have joined"


StartNow = Callable[[Mapping[Option, int]], Mapping[Option, int]]
"""Returns how many of the replicas that wait for nodes may start now, of each model or variant that needs a pilot."""


class _OnNew(NamedTuple):
    """A replica with a member on a new node, and the indices of those nodes' types."""

    placed: Placed
    types: frozenset[int]

    @property
    def model(self) -> str:
        return self.placed.demand.shape.key


@dataclass(frozen=True)
class Growing:
    """The existing nodes, with a plan on their `ledger`, and the node types that may be added."""

    types: Sequence[GrowType]
    policies: Sequence[NodePolicy]
    inventory: Inventory
    ledger: Ledger

    @cached_property
    def _living(self) -> list[list[Node]]:
        return [living(self.inventory, one) for one in self.types]

    @cached_property
    def _shapes(self) -> list[NodeShape]:
        return [NodeShape(next_node(one, nodes), None) for one, nodes in zip(self.types, self._living, strict=True)]

    @cached_property
    def _prices(self) -> list[int | None]:
        """What a new node of each type costs an hour; None = unknown."""
        return [effective_policy(self.policies, one.node.labels).price if one.price is None else one.price
                for one in self.types]

    def find(
        self, short: Sequence[Demand], quotas: Quotas, state: LiveState, placed: Sequence[Placed],
        blocked: Sequence[Blocked], start_now: StartNow | None = None,
    ) -> tuple[list[Growth], list[Blocked], list[Placed]]:
        """Return a row per type, the blocked replicas with updated reasons, and the replicas for new nodes.

        `short` = the demands that found no room; `quotas` count all of `placed`. The nodes of replicas that may not
        `start_now` are requested once their pilot is ready.
        """
        wants_memory = any(claim.vram for one in short for claim, _ in one.shape.kinds)
        joined = [unreported(self.inventory, nodes) if wants_memory else 0 for nodes in self._living]

        counts, on_new = list[int](), list[_OnNew]()

        def packed(asked: Sequence[Demand]) -> Packing:
            nonlocal counts, on_new
            counts = self._fewest(asked, joined)
            on_new = self._packed(asked, counts)
            return Packing([one.placed for one in on_new], 0)

        short = pack_within(quotas, short, packed, lambda: None).asked
        totals = quotas.after(one.placed for one in on_new)
        used = {member.node_id for replica, ours in state.running if ours for member in replica.members}
        used |= {self.ledger.nodes[assigned.node].id for one in placed for assigned in one.assignments}
        now, later = counts, Counter[str]()
        if start_now is not None and on_new:
            now, later = self._for_pilots(short, on_new, start_now, counts, joined)
        rows = [self._row(at, used, short=counts[at], count=max(0, counts[at] - joined[at]),
                          now=max(0, now[at] - joined[at]), on_new=on_new) for at in range(len(self.types))]
        demands = grouped((one.shape.key, one) for one in short)
        explained = [self._explained(row, demands[row.model], on_new, rows, totals) if row.model in demands else row
                     for row in blocked]
        explained = [row.model_copy(update={"after_pilot": later[row.model]}) if later[row.model] else row
                     for row in explained]
        return rows, explained, [one.placed for one in on_new]

    def most_on_new(self, short: Sequence[Demand]) -> Counter[str]:
        """Return how many replicas of each model need new nodes and would fit if all allowed nodes were added."""
        return self._fitting(short, self._at_most(short, [0] * len(self.types)))

    def _at_most(self, short: Sequence[Demand], joined: Sequence[int]) -> list[int]:
        """Return how many nodes of each type may count as new; `joined` = nodes that do not report their cards yet."""
        most = {one.place: 0 for one in short}
        for one in short:
            most[one.place] = max(most[one.place], one.missing * one.shape.size)
        needed = sum(most.values())
        return [min(needed, max(0, kind.max - len(nodes)) + unreported_nodes)
                for kind, nodes, unreported_nodes in zip(self.types, self._living, joined, strict=True)]

    def _fewest(self, short: Sequence[Demand], joined: Sequence[int], limit: Sequence[int] = ()) -> list[int]:
        """Return the fewest nodes of each type, of the cheapest types, on which as much fits as on all of them.

        `limit` = no more than these of each type.
        """
        most = self._at_most(short, joined)
        most = [min(pair) for pair in zip(most, limit, strict=True)] if limit else most
        fitting = self._fitting(short, most)

        first = fewest(most, [0] * len(most), lambda counts: self._fitting(short, counts) == fitting, last_first=True)
        if len(self.types) == 1 or all(price is None for price in self._prices) or not any(first):
            return first
        from fleetctl.planner.cheapest import LEAST_TRIED, MOST_TRIED, Search, kinds_of_nodes  # for types with prices

        one_of_each = ledger_with(self.ledger, (), [self._shapes[at].fresh(1, self.policies, start=at)[0]
                                                    for at in range(len(self.types))], ())
        variants = grouped((one.shape.key, one.shape) for one in short)
        kinds, needs = kinds_of_nodes(self._prices, most, joined, one_of_each, self.ledger,
                                      [(shapes, fitting[key]) for key, shapes in variants.items()])
        usable = self._usable(short)
        found = Search(kinds, needs, lambda counts: self._fitting(short, counts, usable) == fitting, first,
                       tries=max(LEAST_TRIED, MOST_TRIED - len(usable))).cheapest()
        return found if self._fitting(short, found) == fitting else first

    def _for_pilots(
        self, short: Sequence[Demand], on_new: Sequence[_OnNew], start_now: StartNow, counts: list[int],
        joined: Sequence[int],
    ) -> tuple[list[int], Counter[str]]:
        """Return how many of these nodes of each type are needed for what may start now, and the others by model."""
        waiting = Counter(one.placed.demand.option for one in on_new)
        limits = start_now(waiting)
        if not limits:
            return counts, Counter()
        first = {option: min(count, limits.get(option, count)) for option, count in waiting.items()}
        keys = {one.option: one.shape.key for one in short}
        later = Counter({keys[option]: 0 for option in waiting})
        for option, count in waiting.items():
            later[keys[option]] += count - first[option]
        of_model = Counter[int]()
        for (place, _), count in first.items():
            of_model[place] += count
        asked = [replace(one, missing=of_model[one.place], least=min(one.least, first.get(one.option, 0)),
                         most=first.get(one.option, 0)) for one in short]
        return self._fewest([one for one in asked if one.most], joined, counts), later

    def _usable(self, short: Sequence[Demand]) -> list[int]:
        """Return the existing nodes that can take a member of what is short: on most full clusters few."""
        ledger, places = self.ledger, set[int]()
        for claim, selector in {kind for one in short for kind in one.shape.kinds}:
            places |= {place for place in ledger.selected(selector) if ledger.fit(ledger.numbers[place], claim)}
        return sorted(places)

    def _fitting(
        self, short: Sequence[Demand], counts: Sequence[int], usable: Sequence[int] | None = None
    ) -> Counter[str]:
        return Counter(one.model for one in self._packed(short, counts, usable))

    def _packed(
        self, short: Sequence[Demand], counts: Sequence[int], usable: Sequence[int] | None = None
    ) -> list[_OnNew]:
        """Return the replicas that need new nodes and fit with these counts of each type.

        `usable` = the only existing nodes to try; None = all of them.
        """
        if not any(counts):
            return []
        existing = range(len(self.ledger.nodes)) if usable is None else usable
        old, type_of = len(existing), [at for at, count in enumerate(counts) for _ in range(count)]
        fresh = [one for at, count in enumerate(counts)
                 for one in self._shapes[at].fresh(count, self.policies, start=sum(counts[:at]))]
        ledger = ledger_with(self.ledger, existing, fresh, [one.shape for one in short])
        packed = [_OnNew(one, frozenset(type_of[assigned.node - old] for assigned in one.assignments
                                        if assigned.node >= old))
                  for one in pack_greedily(state_problem(short, ledger), Placer(ledger))]
        return [one for one in packed if one.types]

    def _row(
        self, at: int, used: Set[str | None], short: int, count: int, now: int, on_new: Sequence[_OnNew],
    ) -> Growth:
        """Return the row of a type that lacks `short` nodes, of which `count` have not joined; `now` = without those
        that wait for a pilot.
        """
        one, models = self.types[at], Counter(found.model for found in on_new if at in found.types)
        keeps = sorted(node.id for node in self._living[at] if short or node.id in used)
        return Growth(name=one.name, labels=one.node.labels, gpus=one.node.gpus, cpus=one.node.cpus, keeps=keeps,
                      nodes=now, after_pilot=count - now, max=one.max, price=self._prices[at],
                      replicas=[GrowingModel(model=model, count=models[model]) for model in sorted(models)])

    def _explained(
        self, row: Blocked, demands: Sequence[Demand], on_new: Sequence[_OnNew], rows: Sequence[Growth], totals: Totals
    ) -> Blocked:
        """Return the row with the new nodes it would run on, or with the limits that rule these out.

        `demands` = those of its model: for a quota, the variant of which it allows most counts.
        """
        mine = [one for one in on_new if one.model == row.model]
        demand = max(demands, key=totals.leave)
        no_remedy: dict[str, object] = {"make_room": [], "would_fit": []}
        if not mine and not totals.leave(demand):
            return row.model_copy(update={"code": "QUOTA", "message": totals.why(demand), "no_remedy": "", **no_remedy})
        limits = "; ".join(self._limits(demands, rows)) if len(mine) < demand.missing else ""
        if mine and totals.leave(demand) < row.replicas - len(mine):
            limits = "; ".join(filter(None, (limits, totals.why(demand))))
        if not mine:
            return row.model_copy(update={"code": AT_MAX, "message": f"{limits}; {row.message}"}) if limits else row
        nodes = ", ".join(self._nodes_text(rows[at], at) for at in sorted({at for one in mine for at in one.types}))
        message = f"would run on {nodes}"
        if len(mine) < row.replicas:
            message = f"{len(mine)} of {row.replicas} {message}; for the others: {limits or row.message}"
        return row.model_copy(update={"code": WAITS_FOR_NODES, "message": message, "on_new_nodes": len(mine),
                                      "no_remedy": ADVICE, **no_remedy})

    def _nodes_text(self, row: Growth, at: int) -> str:
        if not row.in_all:
            return f"{row.name} nodes that have just joined and do not report their cards yet"
        later = f", {row.after_pilot} of them once a pilot is ready" if row.nodes else ", once a pilot is ready"
        return (f"{count_of(row.in_all, f'new {row.name} node')} ({len(self._living[at]) + row.in_all} of {row.max})"
                + (later if row.after_pilot else ""))

    def _limits(self, demands: Sequence[Demand], rows: Sequence[Growth]) -> Iterator[str]:
        """Yield a sentence for each type whose nodes could take a replica if more of them were allowed."""
        for at, row in enumerate(rows):
            def may_take(shape: ReplicaShape, at: int = at) -> bool:
                new_only = ledger_with(self.ledger, (), self._shapes[at].fresh(shape.size, self.policies), ())
                return Placer(new_only).place(shape) is not None

            if any(may_take(demand.shape) for demand in demands):
                count = len(self._living[at]) + row.in_all
                yield f"spec.cluster.grow allows too few {row.name} nodes ({count} of {row.max})"


def living(inventory: Inventory, kind: GrowType) -> list[Node]:
    """Return the nodes of a type that are alive and not draining."""
    return [node for node in inventory.nodes
            if node.state == "ALIVE" and kind.node.labels.items() <= node.labels.items()]


def unreported(inventory: Inventory, nodes: Sequence[Node]) -> int:
    """Return how many of the nodes have just joined and do not report the memory of their cards yet."""
    now = seconds(inventory.observed_at)
    return sum(bool(node.resources.total.gpu) and not any(card.memory_total for card in node.gpus)
               and now - seconds(node.started_at) < REPORTED_S for node in nodes)


def next_node(kind: GrowType, nodes: Sequence[Node]) -> Node:
    """Return an empty node of a type, with no more of anything than the smallest of its existing `nodes`.

    If the file promised more than real nodes have, every plan would ask for yet another node.
    """
    declared, totals = kind.node, [node.resources.total for node in nodes]
    seen = [card.memory_total for node in nodes for card in node.gpus if card.memory_total]
    memory = min([*([declared.vram] if declared.vram else ()), *seen], default=None)
    total = Amounts(gpu=min([declared.gpus, *(one.gpu for one in totals)]),
                    cpu=min([declared.cpus / SHARE, *(one.cpu for one in totals)]),
                    memory=min([declared.memory, *(one.memory for one in totals)]))
    cards = [Gpu(index=index, memory_total=memory) for index in range(int(total.gpu))]
    return Node(id="", name="", labels=declared.labels, resources=NodeResources(total=total, used=Amounts()),
                gpus=cards)
