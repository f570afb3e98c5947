"""What members cost on each node of a ledger, where prices decide between the variants of models.

The share of a node that a member takes is that of its cards; only on a node without cards it is that of its CPUs.
`prices.py` says where prices decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

from fleetctl.planner.placement.claims import Claim, Kind

NOTHING = Fraction(0)


class NodeSize(NamedTuple):
    """What the share of a node depends on: its cards and CPUs in 1/10000, and the bytes of its largest card."""

    cards: int
    cpus: int
    card: int

    def share(self, claim: Claim) -> Fraction:
        """Return the share of a node that a claim takes, between 0 and 1."""
        total = self.cards or self.cpus
        taken = claim.share_on(self.card) if self.cards else claim.cpus
        return Fraction(max(0, min(taken, total)), total) if total else NOTHING

    def may_hold(self, claim: Claim) -> bool:
        """Return whether a node of this size could hold a member that takes a share of it."""
        if not self.cards:
            return not claim.wants_card and 0 < claim.cpus <= self.cpus
        return claim.wants_card and claim.gpus <= self.cards and not 0 < self.card < claim.vram


class Tariff(NamedTuple):
    """The price of a node in 1/10^6 an hour, None = unknown, and what it is shared by."""

    price: int | None
    size: NodeSize


@dataclass(frozen=True)
class PriceTable:
    """What members cost, in whole steps. Claims may be those of a reduced problem."""

    models: frozenset[str]
    """The keys of the models whose prices count."""
    kinds: frozenset[Kind]
    """The kinds of their members."""
    of_node: Sequence[int]
    """By node: the number of its tariff. Nodes with equal numbers cost the same."""
    tariffs: Sequence[Tariff]
    step: int
    """In 1/10^6 an hour."""
    _known: dict[tuple[Claim, int], int] = field(default_factory=dict)

    def at(self, claim: Claim, tariff: int) -> int:
        """Return what a member costs on nodes with this tariff."""
        cost = self._known.get((claim, tariff))
        if cost is None:
            price, size = self.tariffs[tariff]
            cost = self._known[claim, tariff] = round((price or 0) * size.share(claim) / self.step)
        return cost

    def least_at(self, kind: Kind, nodes: Iterable[int]) -> int:
        """Return what a member costs at least on some nodes."""
        return min((self.at(kind[0], tariff) for tariff in {self.of_node[node] for node in nodes}
                    if self.tariffs[tariff].size.may_hold(kind[0])), default=0)

    @property
    def by_cpus(self) -> bool:
        """Whether CPUs matter for the price of a member."""
        return any(claim.cpus and not claim.wants_card for claim, _ in self.kinds)

    def with_kinds(self, reduced: Mapping[Kind, Kind]) -> PriceTable:
        """Return the table for the kinds of a reduced problem."""
        return replace(self, kinds=frozenset(reduced[kind] for kind in self.kinds))
