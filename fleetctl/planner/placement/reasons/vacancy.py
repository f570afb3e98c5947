"""What a node would offer if some of those who are on it, or would be, were not there."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.occupants import Occupants

Gone = frozenset[int]
"""Numbers of occupants that are thought away."""


@dataclass
class Vacancies:
    """Answers, and remembers, what nodes would offer without some occupants; `steps` counts the questions."""

    occupants: Occupants
    steps: int = 0
    _known: dict[tuple[int, Gone], Offer | None] = field(default_factory=dict)

    def without(self, place: int, gone: Gone) -> Offer | None:
        """Return what a node would offer; None where the planned rest could then not be placed as planned."""
        gone = gone.intersection(self.occupants.here(place))
        self.steps += 1
        if (place, gone) not in self._known:
            offer, fits = self.occupants.offer_without(place, gone, sure=True)
            self._known[place, gone] = offer if fits else None
        return self._known[place, gone]
