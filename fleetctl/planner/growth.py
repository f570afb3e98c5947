"""What fits on no node there is, on nodes that the autoscaler may add: of which types, and how many.

The plan itself is made without them and stays as it is: nothing can be created on a node that does not exist. Each type
gets the fewest nodes with which as much fits as with all that may come; the last types of the file are lowered first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fleetctl.documents.fleet import NodePolicy
from fleetctl.documents.grow import GrowType
from fleetctl.documents.inventory import Amounts, Gpu, Inventory, Node, NodeResources
from fleetctl.documents.plan import WAITS_FOR_NODES, Blocked, GrowingModel, Growth
from fleetctl.documents.quantity import SHARE, count_of
from fleetctl.planner.breaker import seconds
from fleetctl.planner.live import LiveState
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.greedy.greedy import pack_greedily
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.problem import state_problem
from fleetctl.planner.placement.reasons.node_shapes import NodeShape
from fleetctl.planner.placement.reasons.trial import fewest, ledger_with

AT_MAX = "MAX_NODES"
REPORTED_S = 60.0
"""How long after a node has joined its cards may be unknown: Ray asks the driver every some seconds."""
ADVICE = "an apply asks Ray's autoscaler for them, and with --wait-for-nodes waits until they are there"


class _OnNew(NamedTuple):
    """A replica with a member on a new node, and the places of the types of those nodes."""

    placed: Placed
    types: frozenset[int]

    @property
    def model(self) -> str:
        return self.placed.demand.shape.key


@dataclass(frozen=True)
class Growing:
    """The nodes there are, with a plan on their `ledger`, and the types of which more may come."""

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

    def find(
        self, short: Sequence[Demand], state: LiveState, placed: Sequence[Placed], blocked: Sequence[Blocked]
    ) -> tuple[list[Growth], list[Blocked], list[Placed]]:
        """Return a row per type, what is blocked in the light of it, and what would run on new nodes.

        `short` = what found no room.
        """
        wants_memory = any(claim.vram for one in short for claim, _ in one.shape.kinds)
        soon = [unreported(self.inventory, nodes) if wants_memory else 0 for nodes in self._living]
        counts = self._fewest(short, self._at_most(short, soon))
        on_new = self._packed(short, counts)
        used = {member.node_id for replica, ours in state.running if ours for member in replica.members}
        used |= {self.ledger.nodes[assigned.node].id for one in placed for assigned in one.assignments}
        rows = [self._row(at, used, counts[at], max(0, counts[at] - soon[at]), on_new) for at in range(len(self.types))]
        demands = {one.shape.key: one for one in short}
        explained = [self._explained(row, demands[row.model], on_new, rows) if row.model in demands else row
                     for row in blocked]
        return rows, explained, [one.placed for one in on_new]

    def most(self, short: Sequence[Demand]) -> Counter[str]:
        """Return how many replicas of each model would run with all nodes that may come, and only with them."""
        return self._fitting(short, self._at_most(short, [0] * len(self.types)))

    def _at_most(self, short: Sequence[Demand], soon: Sequence[int]) -> list[int]:
        """Return how many nodes of each type may count as new; `soon` = that have joined without their cards."""
        needed = sum(one.missing * one.shape.size for one in short)
        return [min(needed, max(0, one.max - len(nodes)) + unknown)
                for one, nodes, unknown in zip(self.types, self._living, soon, strict=True)]

    def _fewest(self, short: Sequence[Demand], most: Sequence[int]) -> list[int]:
        fitting = self._fitting(short, most)
        return fewest(most, [0] * len(most), lambda counts: self._fitting(short, counts) == fitting, last_first=True)

    def _fitting(self, short: Sequence[Demand], counts: Sequence[int]) -> Counter[str]:
        return Counter(one.model for one in self._packed(short, counts))

    def _packed(self, short: Sequence[Demand], counts: Sequence[int]) -> list[_OnNew]:
        """Return what fits with so many new nodes of each type, and only with them."""
        if not any(counts):
            return []
        old, type_of = len(self.ledger.nodes), [at for at, count in enumerate(counts) for _ in range(count)]
        fresh = [one for at, count in enumerate(counts)
                 for one in self._shapes[at].fresh(count, self.policies, start=sum(counts[:at]))]
        ledger = ledger_with(self.ledger, range(old), fresh, [one.shape for one in short])
        packed = [_OnNew(one, frozenset(type_of[assigned.node - old] for assigned in one.assignments
                                        if assigned.node >= old))
                  for one in pack_greedily(state_problem(short, ledger), Placer(ledger))]
        return [one for one in packed if one.types]

    def _row(self, at: int, used: Set[str | None], short: int, count: int, on_new: Sequence[_OnNew]) -> Growth:
        """Return the row of a type of which `short` nodes are missing, `count` of them not even started."""
        one, models = self.types[at], Counter(found.model for found in on_new if at in found.types)
        keeps = sorted(node.id for node in self._living[at] if short or node.id in used)
        return Growth(name=one.name, labels=one.node.labels, gpus=one.node.gpus, cpus=one.node.cpus, keeps=keeps,
                      nodes=count, max=one.max,
                      replicas=[GrowingModel(model=model, count=models[model]) for model in sorted(models)])

    def _explained(self, row: Blocked, demand: Demand, on_new: Sequence[_OnNew], rows: Sequence[Growth]) -> Blocked:
        """Say of what is blocked on which new nodes it would run, or that there may be no more of those it needs."""
        mine = [one for one in on_new if one.model == row.model]
        limits = "; ".join(self._limits(demand, rows)) if len(mine) < demand.missing else ""
        if not mine:
            return row.model_copy(update={"code": AT_MAX, "message": f"{limits}; {row.message}"}) if limits else row
        nodes = ", ".join(self._words(rows[at], at) for at in sorted({at for one in mine for at in one.types}))
        said = f"would run on {nodes}"
        if len(mine) < row.replicas:
            said = f"{len(mine)} of {row.replicas} {said}; for the others: {limits or row.message}"
        return row.model_copy(update={"code": WAITS_FOR_NODES, "message": said, "on_new_nodes": len(mine),
                                      "make_room": [], "would_fit": [], "no_remedy": ADVICE})

    def _words(self, row: Growth, at: int) -> str:
        if not row.nodes:
            return f"{row.name} nodes that have just joined, and do not report their cards yet"
        return f"{count_of(row.nodes, f'new {row.name} node')} ({len(self._living[at]) + row.nodes} of {row.max})"

    def _limits(self, demand: Demand, rows: Sequence[Growth]) -> Iterator[str]:
        """Yield the types that could take the replica, if there might be more of them."""
        for at, row in enumerate(rows):
            alone = ledger_with(self.ledger, (), self._shapes[at].fresh(demand.shape.size, self.policies), ())
            if Placer(alone).place(demand.shape) is not None:
                there = len(self._living[at]) + row.nodes
                yield f"spec.cluster.grow allows too few {row.name} nodes ({there} of {row.max})"


def living(inventory: Inventory, kind: GrowType) -> list[Node]:
    """Return the nodes of a type that are alive, and stay so."""
    return [node for node in inventory.nodes
            if node.state == "ALIVE" and kind.node.labels.items() <= node.labels.items()]


def unreported(inventory: Inventory, nodes: Sequence[Node]) -> int:
    """Return how many of them have just joined, and do not say yet what memory their cards have."""
    now = seconds(inventory.observed_at)
    return sum(bool(node.resources.total.gpu) and not any(card.memory_total for card in node.gpus)
               and now - seconds(node.started_at) < REPORTED_S for node in nodes)


def next_node(kind: GrowType, nodes: Sequence[Node]) -> Node:
    """Return an empty node of a type, with no more than the least of those there are.

    A file that promises more than the nodes have would ask for one node after the other.
    """
    made, totals = kind.node, [node.resources.total for node in nodes]
    seen = [card.memory_total for node in nodes for card in node.gpus if card.memory_total]
    memory = min([*([made.vram] if made.vram else ()), *seen], default=None)
    total = Amounts(gpu=min([made.gpus, *(one.gpu for one in totals)]),
                    cpu=min([made.cpus / SHARE, *(one.cpu for one in totals)]),
                    memory=min([made.memory, *(one.memory for one in totals)]))
    cards = [Gpu(index=index, memory_total=memory) for index in range(int(total.gpu))]
    return Node(id="", name="", labels=made.labels, resources=NodeResources(total=total, used=Amounts()), gpus=cards)
