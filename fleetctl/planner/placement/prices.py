"""What replicas cost an hour: the price of a node, times the share of the node that a member takes.

The share is that of the node's cards. Only on a node without cards it is that of its CPUs: where there are cards, a
member without cards costs nothing. Prices are integers of 1/10^6 an hour, in whichever unit the fleet file has; sums
are exact and rounded once. Plans import this room only for fleets with prices.

Where prices decide between the variants of models, they do so in whole numbers (`ledger/price_table.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from fleetctl.documents.inventory import Amounts, Inventory, Replica
from fleetctl.documents.plan import Growth, Plan, PlanPrice
from fleetctl.documents.quantity import SHARE
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.placement.claims import Claim, Kind, Selector
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.ledger.price_table import NOTHING, NodeSize, PriceTable, Tariff
from fleetctl.planner.placement.policies import policy_of

NAMED = 5
"""The most nodes without a price that a plan names."""
STEPS = 10_000
"""Where prices decide, the dearest card costs at most so many steps, and what each card costs is rounded to whole ones.

So a solver can tell the price of a fleet of thousands of cards from the next one.
"""
UNKNOWN = Amounts()
Taken = tuple[LedgerNode, Claim]
"""What a member claims on its node."""


def price_of(claim: Claim, node: LedgerNode) -> int | None:
    """Return the price of a member with this claim on a node, rounded to 1/10^6; None = the node has no price."""
    price = node.policy.price
    return None if price is None else round(price * share_of(claim, node))


def share_of(claim: Claim, node: LedgerNode) -> Fraction:
    """Return the share of a node that a claim takes, between 0 and 1."""
    return _size_of(node).share(claim)


def _size_of(node: LedgerNode) -> NodeSize:
    total = node.total or UNKNOWN
    return NodeSize(round(total.gpu * SHARE), round(total.cpu * SHARE), node.largest_card)


def prices_between(demands: Sequence[Demand], ledger: Ledger) -> PriceTable | None:
    """Return the prices that decide between the variants of models; None if they decide nothing.

    They count for a model with a choice of variants if each open node that could hold a member of one has a price.
    """
    numbers = dict[Tariff, int]()
    of_node = [numbers.setdefault(Tariff(node.policy.price, _size_of(node)), len(numbers)) for node in ledger.nodes]
    tariffs, present = list(numbers), dict[Selector, set[int]]()
    ways, found = Counter(demand.place for demand in demands), dict[str, set[Kind]]()
    unknown, dearest = set[str](), NOTHING
    for demand in demands:
        for kind in demand.shape.kinds if ways[demand.place] > 1 else ():
            claim, selector = kind
            if selector not in present:
                present[selector] = {of_node[node] for node in ledger.selected(selector)}
            found.setdefault(demand.shape.key, set()).add(kind)
            for tariff in (tariffs[number] for number in present[selector]):
                if tariff.size.may_hold(claim):
                    dearest = max(dearest, tariff.of_one)
                    if tariff.price is None:
                        unknown.add(demand.shape.key)
    counted = found.keys() - unknown
    if not counted or not dearest:
        return None
    kinds = frozenset[Kind]().union(*(found[key] for key in counted))
    steps = [round(tariff.of_one * STEPS / dearest) for tariff in tariffs]
    return PriceTable(frozenset(counted), kinds, of_node, [tariff.size for tariff in tariffs], steps)


def plan_price(
    nodes: Sequence[LedgerNode], live: Iterable[Replica], placed: Iterable[Placed], growth: Sequence[Growth]
) -> PlanPrice:
    """Return what the new replicas of a plan add, and what they cost together with the `live` ones."""
    by_id = {node.id: node for node in nodes}
    running, kept = _sum((by_id[member.node_id], Claim(member.gpus, member.vram, member.cpus))
                         for replica in live for member in replica.members if member.node_id in by_id)
    new, taken = _sum((nodes[assigned.node], assigned.seat.claim._replace(gpus=assigned.gpus))
                      for replica in placed for assigned in replica.assignments)
    on_new = sum(row.in_all * (row.price or 0) for row in growth)
    unpriced = sorted((kept | taken).values())
    return PlanPrice(
        adds=round(new) + on_new, new_nodes=on_new, total=round(running + new) + on_new, examples=unpriced[:NAMED],
        unpriced=len(unpriced) + sum(row.in_all for row in growth if row.price is None))


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
    return added - round(without) - sum(row.in_all * (now.get(row.name, row.price) or 0) for row in before.growth)


def _sum(members: Iterable[Taken]) -> tuple[Fraction, dict[str, str]]:
    """Return the price of members, and the names by id of the nodes without a price of which they take a share."""
    sizes, alike, unpriced = dict[str, NodeSize](), Counter[tuple[int, NodeSize, Claim]](), dict[str, str]()
    for node, claim in members:
        if node.id not in sizes:
            sizes[node.id] = _size_of(node)
        if node.policy.price is not None:
            alike[node.policy.price, sizes[node.id], claim] += 1
        elif node.id not in unpriced and sizes[node.id].share(claim):
            unpriced[node.id] = node.name
    return sum((count * price * size.share(claim) for (price, size, claim), count in alike.items()), NOTHING), unpriced
