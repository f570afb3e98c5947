"""The nodes of one pool while members are put on them: whole cards, CPU and memory left, and what stands where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.exact.items import Pool
from fleetctl.planner.placement.exact.tally import Tally
from fleetctl.planner.placement.problem import DemandClass


class Yard:
    """What is left on the nodes of a pool; nodes where something stands already are preferred, then tight fits."""

    def __init__(self, tally: Tally, pool: Pool) -> None:
        self.pool, self._tally = pool, tally
        self.standing: Counter[tuple[int, int, int]] = Counter()
        """Members of a gang on a node, by (node, class of demand, gang)."""
        self._row: dict[int, int] = {}
        self._cpus: dict[int, int] = {}
        self._memory: dict[int, int] = {}
        self._free: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
        self._parts: dict[int, Iterator[tuple[int, int]]] = {}
        whole = tally.whole_cards(0)
        for row, nodes in zip(pool.rows.tolist(), pool.nodes, strict=True):
            buckets = self._free[tally.problem.nodes[row].offer.empty]
            buckets.setdefault(int(whole[row]), []).extend(reversed(nodes))
            cpus, memory = int(tally.cpus[row]), int(tally.memory[row])
            for node in nodes:
                self._row[node], self._cpus[node], self._memory[node] = row, cpus, memory

    def free_slots(self, node: int, demand: DemandClass) -> int:
        """Return how many more replicas of a class may touch a node, as it was at first."""
        return self._tally.problem.nodes[self._row[node]].free_slots(demand)

    def most(self, node: int, claim: Claim, kind: int) -> int:
        """Return how many more of a claim a node could hold by CPU and memory, and at first by its cards."""
        limit = int(self._tally.most(kind)[self._row[node]])
        if claim.cpus:
            limit = min(limit, self._cpus[node] // claim.cpus)
        return min(limit, self._memory[node] // claim.memory) if claim.memory else limit

    def stand(self, node: int, demand: int, gang: int, claim: Claim, count: int) -> None:
        """Note that members stand on a node; their whole cards were taken before."""
        self.standing[node, demand, gang] += count
        self._cpus[node] -= claim.cpus * count
        self._memory[node] -= claim.memory * count

    def take(self, size: int, want: int, room: Callable[[int], int]) -> Iterator[tuple[int, int]]:
        """Take room for `want` members of `size` whole cards each; yields (node, how many there) while it lasts.

        `room` = how many more a node may hold for other reasons.
        """
        for buckets in self._free:
            for free in sorted(free for free in buckets if free >= size):
                nodes, passed = buckets.pop(free), []
                while nodes and want:
                    node = nodes.pop()
                    count = min(want, room(node), free // size if size else want)
                    if count <= 0:
                        passed.append(node)
                        continue
                    want -= count
                    self._free[0].setdefault(free - count * size, []).append(node)
                    yield node, count
                if nodes or passed:
                    buckets.setdefault(free, [])[:0] = [*nodes, *reversed(passed)]
                if not want:
                    return

    def next_card(self, card_class: int, cards: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
        """Hand out the cards of a class one by one, node by node, as (node, free share)."""
        if card_class not in self._parts:
            nodes_of = dict(zip(self.pool.rows.tolist(), self.pool.nodes, strict=True))
            self._parts[card_class] = iter(sorted((node, share) for row, share in cards for node in nodes_of[row]))
        return next(self._parts[card_class], None)
