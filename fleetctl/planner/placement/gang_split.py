"""Deals members on nodes out to gangs: which member belongs to which, no gang twice on a node beyond what it may.

A node with many members goes first, each to the gang that still needs most: for members of one kind that works whenever
anything does (Gale and Ryser 1957). With several kinds it may end in a dead end, which a bounded search resolves.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush, heapreplace

from fleetctl.planner.placement.problem import Gang

GangNodes = dict[int, list[int]]
"""One gang: nodes by kind number, one entry per member."""
Members = Counter[tuple[int, int]]
"""How many members of (node, kind)."""
SEARCH_STEPS = 4_000
SEARCH_PIECES = 400
"""The search goes one level deeper for each member. Without it two of 752 fleets with gangs lose a replica."""


def split_into_gangs(gang: Gang, members: Members, together: int) -> list[GangNodes]:
    """Return as many whole gangs as the deal yields; up to `together` members of one gang share a node at once."""
    table = _Table(gang, members, together)
    table.split_greedily()
    if len(table.whole()) < table.count and len(gang.parts) > 1 and len(table.pieces) <= SEARCH_PIECES:
        again = _Table(gang, members, together)
        if again.search(0):
            return again.whole()
    return table.whole()


class _Table:
    """Members being dealt out to as many gangs as there are members for."""

    def __init__(self, gang: Gang, members: Members, together: int) -> None:
        self.members, self.together = members, together
        self.alone, self.per_node = gang.size == 1, gang.per_node
        needs = dict(gang.parts)
        counts = Counter[int]()
        on_node = Counter[int]()
        for (node, kind), count in members.items():
            counts[kind] += count
            on_node[node] += count
        self.count = min((counts[kind] // need for kind, need in needs.items()), default=0)
        self.nodes: list[GangNodes] = [{kind: [] for kind in needs} for _ in range(self.count)]
        self.assigned = [Counter[int]() for _ in range(self.count)]
        self.left = [Counter(needs) for _ in range(self.count)]
        self.order = sorted(members, key=lambda item: (-on_node[item[0]], item))
        self.pieces = [item for item in self.order for _ in range(members[item])]
        self.steps = SEARCH_STEPS

    def whole(self) -> list[GangNodes]:
        """Return the gangs that have all their members."""
        return [members for turn, members in enumerate(self.nodes) if not self.left[turn].total()]

    def split_greedily(self) -> None:
        """Deal node by node, each member to the gang that still needs most."""
        needy = [(-self.left[turn].total(), turn) for turn in range(self.count)]
        for node, kind in self.order:
            count, full = self.members[node, kind], []
            while count and needy:
                turn = needy[0][1]
                given = min(count, self.together, self._room(turn, node, kind))
                if given:
                    self._give(turn, node, kind, given)
                    heapreplace(needy, (-self.left[turn].total(), turn))
                    count -= given
                else:
                    full.append(heappop(needy))
            for one in full:
                heappush(needy, one)

    def search(self, place: int) -> bool:
        """Deal all pieces from number `place` on, going back where one finds no gang; False when that fails."""
        if place == len(self.pieces):
            return True
        node, kind = self.pieces[place]
        tried = set[tuple[object, ...]]()
        for turn in sorted(range(self.count), key=lambda one: (-self.left[one].total(), one)):
            alike = (tuple(sorted(self.left[turn].items())), tuple(sorted(self.assigned[turn].items())))
            if not self._room(turn, node, kind) or alike in tried:
                continue
            tried.add(alike)
            self.steps -= 1
            if self.steps < 0:
                return False
            self._give(turn, node, kind, 1)
            if self.search(place + 1):
                return True
            self._give(turn, node, kind, -1)
        return False

    def _give(self, turn: int, node: int, kind: int, count: int) -> None:
        if count > 0:
            self.nodes[turn][kind] += [node] * count
        else:
            self.nodes[turn][kind].pop()
        self.assigned[turn][node] += count
        self.left[turn][kind] -= count

    def _room(self, turn: int, node: int, kind: int) -> int:
        """Return how many more of a kind one gang may have on a node."""
        per_node = 1 if self.alone else self.per_node - self.assigned[turn][node]
        return max(0, min(per_node, self.left[turn][kind]))
