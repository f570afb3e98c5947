"""What replicas cost an hour: the price of a node, times the share of the node that a member takes.

The share is that of the node's cards. Only on a node without cards it is that of its CPUs: where there are cards,
a member without cards costs nothing. Prices are integers of 1/10^6 an hour, in whichever unit the fleet file has.
"""

from __future__ import annotations

from fractions import Fraction

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.ledger import LedgerNode


def price_of(claim: Claim, node: LedgerNode) -> int | None:
    """Return the price of a member with this claim on a node, rounded to 1/10^6; None = the node has no price."""
    price = node.policy.price
    return None if price is None else round(price * share_of(claim, node))


def share_of(claim: Claim, node: LedgerNode) -> Fraction:
    """Return the share of a node that a claim takes, between 0 and 1."""
    gpus, cpus = (round(node.total.gpu * SHARE), round(node.total.cpu * SHARE)) if node.total else (0, 0)
    taken, total = (claim.share_on(node.largest_card), gpus) if gpus else (claim.cpus, cpus)
    return min(Fraction(taken, total), Fraction(1)) if total else Fraction(0)
