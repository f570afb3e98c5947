"""A member that finds no node: every node's verdict, summed up by code, and the words for amounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.documents.plan import Reason
from fleetctl.documents.quantity import format_bytes, format_share
from fleetctl.planner.placement.claims import Claim, GroupShape, ReplicaShape, Seat
from fleetctl.planner.placement.ledger import Ledger
from fleetctl.planner.placement.verdict import CLOSEST_FIRST, Verdict, judge

MAX_EXAMPLES = 5
Explanation = tuple[str, str, list[Reason]]
"""Code, message, reasons."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The member of a group that is hardest to place: `count` ranks of its kind, and what every live node says."""

    shape: ReplicaShape
    group: GroupShape
    seat: Seat
    count: int
    ledger: Ledger
    judged: Sequence[tuple[int, Verdict | None]]

    @property
    def fitting(self) -> list[int]:
        """Return the nodes that could take one such member."""
        return [place for place, verdict in self.judged if verdict is None]

    @property
    def nodes_needed(self) -> int:
        """Return how many nodes the ranks of this kind need at least."""
        return -(-self.count // self.shape.ranks_per_node)

    def reasons(self) -> list[Reason]:
        """Sum the nodes up by code, the codes nearest to success first."""
        by_code: dict[str, list[tuple[int, Verdict]]] = {}
        for place, verdict in self.judged:
            if verdict is not None:
                by_code.setdefault(verdict.code, []).append((place, verdict))
        return [self._reason(code, by_code[code]) for code in CLOSEST_FIRST if code in by_code]

    def examples(self, places: Sequence[int]) -> list[str]:
        """Return the names of the first few nodes."""
        return [self.ledger.nodes[place].name for place in places[:MAX_EXAMPLES]]

    def _reason(self, code: str, found: list[tuple[int, Verdict]]) -> Reason:
        """Let the node that misses by least speak for all of one code."""
        place, nearest = min(found, key=lambda item: (item[1].need - item[1].have, item[0]))
        measured = nearest.need > 0
        return Reason(
            code=code, node_count=len(found), need=nearest.need_text,
            best=f"{nearest.show(nearest.have)} on {self.ledger.nodes[place].name}" if measured else "none",
            short=nearest.show(nearest.need - nearest.have) if measured else "",
            examples=self.examples([place for place, _ in found]),
        )


def hardest_member(shape: ReplicaShape, group: GroupShape, ledger: Ledger) -> Shortfall:
    """Return the kind of member of a group with the fewest nodes to spare, on the ledger as it stands."""
    found: list[Shortfall] = []
    rank = 0
    counts = group.classes()
    for member in group.members:
        seat = Seat(group.name, 0, member.role, rank, member.claim, member.selector)
        rank += member.count
        judged = _judge_all(shape, seat, ledger)
        found.append(Shortfall(shape, group, seat, counts[member.claim, member.selector], ledger, judged))
    return min(found, key=lambda one: len(one.fitting) - one.nodes_needed)


def _judge_all(shape: ReplicaShape, seat: Seat, ledger: Ledger) -> list[tuple[int, Verdict | None]]:
    return [(place, judge(ledger, place, seat, shape.key, wants_cards=shape.wants_cards))
            for place, node in enumerate(ledger.nodes) if node.state != "DEAD"]


def nodes(count: int) -> str:
    """Return a number of nodes in words."""
    return "1 node" if count == 1 else f"{count} nodes"


def with_claim(claim: Claim) -> str:
    """Say what one member needs on its node, GPUs first; empty when it needs nothing countable."""
    if claim.whole_cards:
        plural = "" if claim.whole_cards == 1 else "s"
        return f" with {claim.whole_cards} free GPU{plural}{_vram_each(claim)}"
    if claim.wants_card:
        share = f" with {format_share(claim.gpus)} of a card free" if claim.gpus else " with a card"
        return share + _vram_each(claim)
    return f" with {format_share(claim.cpus)} free CPUs" if claim.cpus else ""


def _vram_each(claim: Claim) -> str:
    if not claim.vram:
        return ""
    return f" of {format_bytes(claim.vram)} free VRAM" + (" each" if claim.whole_cards > 1 else "")
