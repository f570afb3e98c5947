"""How many whole gangs the members on the nodes make, where ranks must stand on different nodes or share a label.

N equal gangs can be cut out of the members of one kind iff sum over nodes of min(members there, N x per node) is at
least N x size; what a node holds beyond that is of no use to them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.planner.placement.patterns.covering import Covering, Domain
from fleetctl.planner.placement.problem import Gang, Problem

Loads = dict[int, Counter[int]]
"""Members by node and item."""


@dataclass(slots=True)
class _Crew:
    """The members of one gang of a class, inside one value of its label where it is bound to one."""

    needs: dict[int, int]
    """Members of each item in one gang."""
    per_node: int
    loads: Loads = field(default_factory=dict)

    def most(self, limit: int) -> int:
        """Return how many whole gangs there are, up to `limit`."""
        supply = Counter[int]()
        for load in self.loads.values():
            supply.update(load)
        count = min([limit, *(supply[item] // need for item, need in self.needs.items())])
        while count > 0 and self.cut(count) is None:
            count -= 1
        return count

    def cut(self, count: int) -> Loads | None:
        """Return what `count` gangs keep of the members; None when they are not enough."""
        surplus = Counter({item: -need * count for item, need in self.needs.items()})
        for load in self.loads.values():
            surplus.update(load)
        kept: Loads = {}
        for node, load in sorted(self.loads.items()):
            kept[node] = Counter(load)
            for _ in range(load.total() - count * self.per_node):
                if not _drop_one(kept[node], surplus):
                    return None
        for node in sorted(kept, key=lambda node: (-kept[node].total(), -node)):
            while _drop_one(kept[node], surplus):
                pass
        return kept


def _drop_one(load: Counter[int], surplus: Counter[int]) -> bool:
    item = max((item for item in load if load[item] and surplus[item] > 0),
               key=lambda item: (surplus[item], -item), default=None)
    if item is None:
        return False
    load[item] -= 1
    surplus[item] -= 1
    return True


class Crews:
    """All gangs with rules on where their ranks stand; `items` = the items that are theirs."""

    def __init__(self, problem: Problem, covering: Covering, held: Mapping[int, Sequence[int]]) -> None:
        self.problem = problem
        by_gang: dict[tuple[int, int, Domain | None], dict[int, int]] = defaultdict(dict)
        for (number, gang_number, kind, domain), item in covering.item_of.items():
            gang = problem.demands[number].gangs[gang_number]
            if domain is not None or (covering.items[item].rule >= 0 and gang.size > 1):
                by_gang[number, gang_number, domain][item] = dict(gang.parts)[kind]
        self.crews = {key: _Crew(needs, self._gang(key).per_node) for key, needs in by_gang.items()}
        owner = {item: key for key, crew in self.crews.items() for item in crew.needs}
        self.items = frozenset(owner)
        for node, items in held.items():
            for item, count in Counter(item for item in items if item in self.items).items():
                self.crews[owner[item]].loads.setdefault(node, Counter())[item] += count

    def _gang(self, key: tuple[int, int, Domain | None]) -> Gang:
        return self.problem.demands[key[0]].gangs[key[1]]

    def replicas(self, number: int) -> int:
        """Return for how many replicas of a class there are gangs."""
        demand = self.problem.demands[number]
        gangs = Counter[int]()
        for key, crew in self.crews.items():
            if key[0] == number:
                gangs[key[1]] += crew.most(demand.missing * self._gang(key).copies)
        return min([demand.missing, *(gangs[place] // demand.gangs[place].copies
                                      for place in {key[1] for key in self.crews if key[0] == number})])

    def kept(self, replicas: Sequence[int]) -> dict[int, Counter[int]]:
        """Return, by node, what members so many replicas keep."""
        kept: dict[int, Counter[int]] = defaultdict(Counter)
        for (number, place) in sorted({key[:2] for key in self.crews}):
            left = replicas[number] * self.problem.demands[number].gangs[place].copies
            for key in sorted((key for key in self.crews if key[:2] == (number, place)), key=str):
                count = self.crews[key].most(left)
                left -= count
                for node, load in (self.crews[key].cut(count) or {}).items():
                    kept[node].update(load)
        return kept
