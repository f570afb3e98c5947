"""Splits the members on nodes into gangs, with at most the allowed number of members of one gang on a node.

Nodes with most members go first, and each member joins the gang that still needs most. For members of one kind this
succeeds whenever a split exists (Gale and Ryser 1957). With several kinds it may fail; then a bounded search follows.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush, heapreplace

from fleetctl.planner.placement.problem import Gang

GangNodes = dict[int, list[int]]
"""One gang: nodes by kind number, one entry per member."""
Members = Counter[tuple[int, int]]
"""The number of members by (node, kind)."""
SEARCH_STEPS = 4_000
SEARCH_PIECES = 400
"""The search recurses once per member. Without it two of 752 fleets with gangs lose a replica."""


def split_into_gangs(gang: Gang, members: Members, together: int) -> list[GangNodes]:
    """Return the whole gangs found; up to `together` members are given to one gang on one node at a time."""
    split = _Split(gang, members, together)
    split.assign_greedily()
    if len(split.whole()) < split.count and len(gang.parts) > 1 and len(split.pieces) <= SEARCH_PIECES:
        searched = _Split(gang, members, together)
        if searched.search(0):
            return searched.whole()
    return split.whole()


class _Split:
    """Members being assigned to as many gangs as they are enough for."""

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
        return [members for gang, members in enumerate(self.nodes) if not self.left[gang].total()]

    def assign_greedily(self) -> None:
        """Assign node by node, each member to the gang that still needs most."""
        needy = [(-self.left[gang].total(), gang) for gang in range(self.count)]
        for node, kind in self.order:
            count, full = self.members[node, kind], []
            while count and needy:
                gang = needy[0][1]
                given = min(count, self.together, self._room(gang, node, kind))
                if given:
                    self._assign(gang, node, kind, given)
                    heapreplace(needy, (-self.left[gang].total(), gang))
                    count -= given
                else:
                    full.append(heappop(needy))
            for one in full:
                heappush(needy, one)

    def search(self, place: int) -> bool:
        """Assign all pieces from number `place` on, backtracking if one finds no gang; False if that fails."""
        if place == len(self.pieces):
            return True
        node, kind = self.pieces[place]
        tried = set[tuple[object, ...]]()
        for gang in sorted(range(self.count), key=lambda one: (-self.left[one].total(), one)):
            state = (tuple(sorted(self.left[gang].items())), tuple(sorted(self.assigned[gang].items())))
            if not self._room(gang, node, kind) or state in tried:
                continue
            tried.add(state)
            self.steps -= 1
            if self.steps < 0:
                return False
            self._assign(gang, node, kind, 1)
            if self.search(place + 1):
                return True
            self._assign(gang, node, kind, -1)
        return False

    def _assign(self, gang: int, node: int, kind: int, count: int) -> None:
        if count > 0:
            self.nodes[gang][kind] += [node] * count
        else:
            self.nodes[gang][kind].pop()
        self.assigned[gang][node] += count
        self.left[gang][kind] -= count

    def _room(self, gang: int, node: int, kind: int) -> int:
        """Return how many more members of a kind one gang may have on a node."""
        per_node = 1 if self.alone else self.per_node - self.assigned[gang][node]
        return max(0, min(per_node, self.left[gang][kind]))
