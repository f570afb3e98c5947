"""What the patterns must cover: the members of all wanted replicas, as items that patterns can hold.

Members of one kind are one item wherever it does not matter which replica they belong to. Where it matters on a single
node, the item is the gang's own, with a rule: the ranks of one gang stand on different nodes (so a node holds at most
`per_node` of each gang), a capped model takes a slot per replica. Since all gangs of a class are equal, a node never
holding more members than (gangs x per_node) is enough: members spread so can always be cut into gangs (the integer
decomposition property of the transportation polytope). A gang bound to a label is covered value by value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleetctl.planner.placement.layout import Piece
from fleetctl.planner.placement.policies import NO_CAP
from fleetctl.planner.placement.problem import DemandClass, NodeClass, Problem

Domain = tuple[str, str | None]
Needs = tuple[tuple[int, int], ...]
"""(item, how many), ascending."""


@dataclass(frozen=True, slots=True)
class Rule:
    """At most `limit` members of the items of one rule stand on a node; a capped class also obeys its free slots."""

    demand: int
    limit: int
    capped: bool


@dataclass(frozen=True, slots=True)
class Item:
    """Members of one kind that may stand for each other. `rule` = -1 when any number may share a node."""

    kind: int
    rule: int
    domain: Domain | None


@dataclass(frozen=True, slots=True)
class BoundGang:
    """Gangs of one class of demand inside one value of its label, and the items one of them needs."""

    demand: int
    gang: int
    needs: Needs


@dataclass(frozen=True, slots=True)
class Covering:
    """All items, what one replica of each class of demand needs of them, and the gangs that are bound to a label."""

    items: tuple[Item, ...]
    rules: tuple[Rule, ...]
    needs: tuple[Needs, ...]
    """By demand class, without its label-bound gangs."""
    bound_gangs: tuple[BoundGang, ...]
    item_of: dict[tuple[int, int, int, Domain | None], int]
    """(demand, gang, kind, domain) -> item."""

    def allowed(self, node: NodeClass) -> list[int]:
        """Return the items whose members may stand on a class of nodes."""
        domains = set(node.domains)
        return [number for number, item in enumerate(self.items)
                if item.kind in node.allowed and (item.domain is None or item.domain in domains)]

    def item_at(self, piece: Piece, node: NodeClass) -> int:
        """Return the item that a member standing on a class of nodes is."""
        free = self.item_of.get((piece.demand, piece.gang, piece.kind, None))
        if free is not None:
            return free
        return next(number for domain in node.domains if domain[1] is not None and
                    (number := self.item_of.get((piece.demand, piece.gang, piece.kind, domain))) is not None)

    def limit(self, rule: int, problem: Problem, node: NodeClass) -> int:
        """Return how many members under a rule may stand on one node of a class."""
        one = self.rules[rule]
        return min(one.limit, node.free_slots(problem.demands[one.demand])) if one.capped else one.limit


def state_covering(problem: Problem) -> Covering:
    """Number the items of a problem, in the order of its demands."""
    draft = _Draft(problem)
    needs, bound = [], []
    for number, demand in enumerate(problem.demands):
        free: dict[int, int] = {}
        for gang_number, gang in enumerate(demand.gangs):
            for domain in _domains(problem, gang.domain_label):
                parts = {draft.item(number, gang_number, kind, domain): count for kind, count in gang.parts}
                if gang.domain_label is not None:
                    bound.append(BoundGang(number, gang_number, tuple(sorted(parts.items()))))
                    continue
                for item, count in parts.items():
                    free[item] = free.get(item, 0) + count * gang.copies
        needs.append(tuple(sorted(free.items())))
    return Covering(tuple(draft.items), tuple(draft.rules), tuple(needs), tuple(bound), draft.item_of)


class _Draft:
    """Items and rules while they are being numbered."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.items: list[Item] = []
        self.rules: list[Rule] = []
        self.item_of: dict[tuple[int, int, int, Domain | None], int] = {}
        self._numbers: dict[Item, int] = {}
        self._rules: dict[Rule | tuple[int, int], int] = {}

    def item(self, demand: int, gang: int, kind: int, domain: Domain | None) -> int:
        one = Item(kind, self._rule(demand, gang), domain)
        number = self._numbers.setdefault(one, len(self.items))
        if number == len(self.items):
            self.items.append(one)
        self.item_of[demand, gang, kind, domain] = number
        return number

    def _rule(self, number: int, gang_number: int) -> int:
        demand: DemandClass = self.problem.demands[number]
        gang = demand.gangs[gang_number]
        if demand.capped:
            return self._numbered((number, -1), Rule(number, NO_CAP, True))
        if gang.size == 1:
            return -1
        return self._numbered((number, gang_number), Rule(number, demand.missing * gang.copies * gang.per_node, False))

    def _numbered(self, key: tuple[int, int], rule: Rule) -> int:
        number = self._rules.setdefault(key, len(self.rules))
        if number == len(self.rules):
            self.rules.append(rule)
        return number


def _domains(problem: Problem, label: str | None) -> Iterator[Domain | None]:
    """Yield the values a gang may lie in; one None for a gang that is bound to no label."""
    if label is None:
        yield None
        return
    for value in sorted({value for node in problem.nodes if (value := node.domain(label)) is not None}):
        yield label, value
