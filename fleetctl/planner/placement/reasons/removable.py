"""Which occupants could go, step by step: first those that matter less than the blocked model, last foreign ones.

For each step it is known, node by node, how much they hold together and the most that one of them holds: from that
follows how many of them would have to go at least, without looking at any node closely.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Flags, Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.occupants import Occupant
from fleetctl.planner.placement.reasons.check import CPU, FITS, MEMORY
from fleetctl.planner.placement.reasons.node_table import NodeTable

MAX_KEPT = 64
NEVER = 1 << 30
"""As a count: not even without all of them."""


@dataclass(frozen=True, slots=True)
class Removable:
    """Those one could do without at one step. Per node: what all of them hold, and the most that one of them holds."""

    members: Flags
    """By number of the occupant."""
    cards: tuple[Ints, Ints]
    cpus: tuple[Ints, Ints]
    memory: tuple[Ints, Ints]

    def least(self, table: NodeTable, claim: Claim, places: Ints) -> Ints:
        """Return for each of `places` how many of them would have to go at least; NEVER = it would not help."""
        code = table.offers.check_offer(claim, places)["code"]
        ok = (code == FITS) | (code == CPU) | (code == MEMORY)
        lacking = claim.whole_cards - table.offers.free_cards(places, claim.vram) if claim.whole_cards else 1
        count = np.maximum(_count(np.where(ok, 0, np.maximum(lacking, 1)), self.cards, places), 1)
        for need, free, held in ((claim.cpus, table.offers.free_cpus, self.cpus),
                                 (claim.memory, table.offers.free_memory, self.memory)):
            count = np.maximum(count, _count(np.maximum(need - free[places], 0), held, places))
        return count


def _count(short: Ints, held: tuple[Ints, Ints], places: Ints) -> Ints:
    """Return how many it takes at least to cover `short` of something; `held`: total, and the most that one holds."""
    total, most = held[0][places], np.maximum(held[1][places], 1)
    return np.where(short == 0, 0, np.where(short > total, NEVER, -(-short // most)))


@dataclass
class Removables:
    """The pools for every priority; made on demand."""

    occupants: Sequence[Occupant]
    nodes: int
    _known: dict[bytes, Removable] = field(default_factory=dict)
    """By who is in it."""

    def of(self, priority: int) -> Iterator[Removable]:
        """Yield the pools for a model of this priority, each wider than the one before."""
        ours, spare, rank = self._ranks
        before = np.zeros(len(ours), dtype=bool)
        for members in (ours & (spare | (rank < priority)), ours & (spare | (rank <= priority)), ours, ours | True):
            if (members != before).any():
                yield self._pool(members)
            before = members

    @cached_property
    def _ranks(self) -> tuple[Flags, Flags, Ints]:
        ours = np.array([one.ours for one in self.occupants], dtype=bool)
        spare = np.array([not one.wanted for one in self.occupants], dtype=bool)
        rank = np.array([one.priority or 0 for one in self.occupants], dtype=np.int64)
        return ours, spare, rank

    @cached_property
    def _holdings(self) -> Ints:
        """One row per occupant and node: occupant, node, cards touched, CPUs, memory."""
        held = ((number, place, -(-gpus // SHARE), cpus, memory) for number, one in enumerate(self.occupants)
                for place, gpus, cpus, memory in one.holds())
        found = np.fromiter(chain.from_iterable(held), dtype=np.int64).reshape(-1, 5)
        whole, row = np.unique(found[:, 0] * self.nodes + found[:, 1], return_inverse=True)
        summed = np.zeros((len(whole), 5), dtype=np.int64)
        summed[row, :2] = found[:, :2]
        np.add.at(summed[:, 2:], row, found[:, 2:])
        return summed

    def _pool(self, members: Flags) -> Removable:
        who = members.tobytes()
        if who not in self._known:
            if len(self._known) >= MAX_KEPT:
                self._known.clear()
            held = self._holdings[members[self._holdings[:, 0]]]
            cards, cpus, memory = (self._per_node(held[:, 1], held[:, column]) for column in (2, 3, 4))
            self._known[who] = Removable(members, cards, cpus, memory)
        return self._known[who]

    def _per_node(self, places: Ints, amounts: Ints) -> tuple[Ints, Ints]:
        total, most = np.zeros((2, self.nodes), dtype=np.int64)
        np.add.at(total, places, amounts)
        np.maximum.at(most, places, amounts)
        return total, most
