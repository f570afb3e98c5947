"""What replicas cost an hour: the price of a node, times the share of the node that a member takes.

The share is that of the node's cards. Only on a node without cards it is that of its CPUs: where there are cards, a
member without cards costs nothing. Prices are integers of 1/10^6 an hour, in whichever unit the fleet file has; sums
are exact and rounded once. Plans import this room only for fleets with prices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from fleetctl.documents.inventory import Amounts, Inventory, Replica
from fleetctl.documents.plan import Growth, Plan, PlanPrice
from fleetctl.documents.quantity import SHARE
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.demand import Placed
from fleetctl.planner.placement.ledger.ledger import LedgerNode
from fleetctl.planner.placement.policies import policy_of

NAMED = 5
"""The most nodes without a price that a plan names."""
NOTHING, UNKNOWN = Fraction(0), Amounts()
Taken = tuple[LedgerNode, Claim]
"""What a member claims on its node."""


def price_of(claim: Claim, node: LedgerNode) -> int | None:
    """Return the price of a member with this claim on a node, rounded to 1/10^6; None = the node has no price."""
    price = node.policy.price
    return None if price is None else round(price * share_of(claim, node))


def share_of(claim: Claim, node: LedgerNode) -> Fraction:
    """Return the share of a node that a claim takes, between 0 and 1."""
    return _Size.of(node).share(claim)


class _Size(NamedTuple):
    """What the share of a node depends on: its cards and CPUs in 1/10000, and the bytes of its largest card."""

    cards: int
    cpus: int
    card: int

    @classmethod
    def of(cls, node: LedgerNode) -> _Size:
        total = node.total or UNKNOWN
        return cls(round(total.gpu * SHARE), round(total.cpu * SHARE), node.largest_card)

    def share(self, claim: Claim) -> Fraction:
        total = self.cards or self.cpus
        taken = claim.share_on(self.card) if self.cards else claim.cpus
        return Fraction(max(0, min(taken, total)), total) if total else NOTHING


def plan_price(
    nodes: Sequence[LedgerNode], live: Iterable[Replica], placed: Iterable[Placed], growth: Sequence[Growth]
) -> PlanPrice:
    """Return what the new replicas of a plan add, and what they cost together with the `live` ones."""
    by_id = {node.id: node for node in nodes}
    running, kept = _sum((by_id[member.node_id], Claim(member.gpus, member.vram, member.cpus))
                         for replica in live for member in replica.members if member.node_id in by_id)
    new, taken = _sum((nodes[assigned.node], assigned.seat.claim._replace(gpus=assigned.gpus))
                      for replica in placed for assigned in replica.assignments)
    on_new = sum(row.nodes * (row.price or 0) for row in growth)
    unpriced = sorted((kept | taken).values())
    return PlanPrice(
        adds=round(new) + on_new, new_nodes=on_new, total=round(running + new) + on_new, examples=unpriced[:NAMED],
        unpriced=len(unpriced) + sum(row.nodes for row in growth if row.price is None))


def added_beyond(before: Plan | None, plan: Plan, fleet: ResolvedFleet, inventory: Inventory) -> int:
    """Return what a plan of `fleet` adds beyond a plan `before`, which may have had other prices, or none."""
    added = plan.price.adds if plan.price else 0
    if before is None:
        return added
    nodes = {node.id: node for node in inventory.nodes}
    members = [member for action in before.all_starts for member in action.members]
    used = {one: LedgerNode.of(nodes[one], policy_of(nodes[one], fleet.policies))
            for one in {member.node_id for member in members}}
    without, _ = _sum((used[member.node_id], Claim(member.gpus, member.vram, member.cpus)) for member in members)
    now = {row.name: row.price for row in plan.growth}
    return added - round(without) - sum(row.nodes * (now.get(row.name, row.price) or 0) for row in before.growth)


def _sum(members: Iterable[Taken]) -> tuple[Fraction, dict[str, str]]:
    """Return the price of members, and the names by id of the nodes without a price of which they take a share."""
    sizes, alike, unpriced = dict[str, _Size](), Counter[tuple[int, _Size, Claim]](), dict[str, str]()
    for node, claim in members:
        if node.id not in sizes:
            sizes[node.id] = _Size.of(node)
        if node.policy.price is not None:
            alike[node.policy.price, sizes[node.id], claim] += 1
        elif node.id not in unpriced and sizes[node.id].share(claim):
            unpriced[node.id] = node.name
    return sum((count * price * size.share(claim) for (price, size, claim), count in alike.items()), NOTHING), unpriced
