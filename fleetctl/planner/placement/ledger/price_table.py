"""What members cost on each node of a ledger, where prices decide between the variants of models.

The share of a node that a member takes is that of its cards; only on a node without cards it is that of its CPUs.
`prices.py` says where prices decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim, Kind

NOTHING = Fraction(0)


class NodeSize(NamedTuple):
    """What the share of a node depends on: its cards and CPUs in 1/10000, and the bytes of its largest card."""

    cards: int
    cpus: int
    card: int

    @property
    def total(self) -> int:
        """The cards, or the CPUs if it has none."""
        return self.cards or self.cpus

    def taken(self, claim: Claim) -> int:
        """Return what a claim takes of the total."""
        return max(0, min(claim.share_on(self.card) if self.cards else claim.cpus, self.total))

    def share(self, claim: Claim) -> Fraction:
        """Return the share of a node that a claim takes, between 0 and 1."""
        return Fraction(self.taken(claim), self.total) if self.total else NOTHING

    def may_hold(self, claim: Claim) -> bool:
        """Return whether a node of this size could hold a member that takes a share of it."""
        if not self.cards:
            return not claim.wants_card and 0 < claim.cpus <= self.cpus
        return claim.wants_card and claim.gpus <= self.cards and not 0 < self.card < claim.vram


class Tariff(NamedTuple):
    """The price of a node in 1/10^6 an hour, None = unknown, and what it is shared by."""

    price: int | None
    size: NodeSize

    @property
    def of_one(self) -> Fraction:
        """The price of one card, or of one CPU if there are none."""
        return Fraction((self.price or 0) * SHARE, self.size.total) if self.size.total else NOTHING


@dataclass(frozen=True)
class PriceTable:
    """What members cost, in 1/10000 of the steps in which a card costs whole numbers.

    Rounded is what a card costs, not a member: replicas that take equal cards then cost the same, however many members
    they have. Claims may be those of a reduced problem.
    """

    models: frozenset[str]
    """The keys of the models whose prices count."""
    kinds: frozenset[Kind]
    """The kinds of their members."""
    of_node: Sequence[int]
    """By node: the number of its tariff. Nodes with equal numbers cost the same."""
    sizes: Sequence[NodeSize]
    """By tariff."""
    steps: Sequence[int]
    """By tariff: what a card costs, or a CPU of nodes without cards."""

    def at(self, claim: Claim, tariff: int) -> int:
        """Return what a member costs on nodes with this tariff."""
        return self.steps[tariff] * self.sizes[tariff].taken(claim)

    def least_at(self, kind: Kind, nodes: Iterable[int]) -> int:
        """Return what a member costs at least on some nodes."""
        return min((self.at(kind[0], tariff) for tariff in {self.of_node[node] for node in nodes}
                    if self.sizes[tariff].may_hold(kind[0])), default=0)

    @property
    def by_cpus(self) -> bool:
        """Whether CPUs matter for the price of a member."""
        return any(claim.cpus and not claim.wants_card for claim, _ in self.kinds)

    def with_kinds(self, reduced: Mapping[Kind, Kind]) -> PriceTable:
        """Return the table for the kinds of a reduced problem."""
        return replace(self, kinds=frozenset(reduced[kind] for kind in self.kinds))
