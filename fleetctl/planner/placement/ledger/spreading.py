"""Where a member of a spread model goes: to the least crowded value of its label, and there to the best fit.

Only where Ray's choice of cards is certain comes before that.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from fleetctl.planner.placement.ledger.candidates import Allowed, Candidates
from fleetctl.planner.placement.ledger.crowds import Crowd, Value


@dataclass(frozen=True, slots=True)
class Crowding:
    """How crowded each value is for one replica; `mine` = values it touches already, at no cost."""

    crowd: Crowd
    value_of: Callable[[int], Value]
    apart: bool
    """Every node has a value of its own."""
    mine: Set[Value] = frozenset()

    def at(self, node: int) -> int:
        """Return how crowded the value of a node is; 0 = this replica touches it already."""
        value = self.value_of(node)
        return 0 if value in self.mine else 1 + self.crowd.get(value, 0)

    def levels(self) -> list[int]:
        """Return how crowded a value can be, the least first."""
        return sorted({1, *([0] if self.mine else ()), *(1 + count for count in self.crowd.values())})

    def only(self, level: int, allowed: Allowed | None) -> Allowed:
        """Return which nodes are allowed and just so crowded."""
        return lambda node: self.at(node) == level and (allowed is None or allowed(node))


def least_crowded(
    candidates: Candidates, allowed: Allowed | None, count: Callable[[int], int], crowding: Crowding
) -> int | None:
    """Return the best of the nodes that are `allowed`; among equal ones the one that fewest of the model touch."""
    risky = None
    for level in crowding.levels():
        node = candidates.best(crowding.only(level, allowed), count)
        fit = None if node is None else candidates.fits.on(node)
        if fit is not None and not fit[0]:
            return node
        risky = node if risky is None else risky
    return risky
