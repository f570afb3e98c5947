"""Which replicas would have to go to make room: named, never done.

On each node the smallest set that helps; for a gang, as many nodes as it lacks. Sought first among those who matter
less than the model that waits (of lower priority, or beyond their target), then of its own priority, then all of this
fleet, and only then among what is not ours. Replicas of the model itself are never named: one for another is no gain.

For each of these steps it is known, node by node, how much the replicas hold together and the most that one of them
holds. That bounds from below how many would have to go, without looking at any node closely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, combinations
from math import comb

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.arrays import Flags, Ints
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer, take
from fleetctl.planner.placement.occupants import Occupants
from fleetctl.planner.placement.reasons.check import Code
from fleetctl.planner.placement.reasons.node_table import NodeTable
from fleetctl.planner.placement.reasons.shortfall import Shortfall
from fleetctl.planner.placement.reasons.trial import MAX_MEMBERS, count_placed, helpful_places

NEVER = 1 << 30
"""As a count: not even without all of them."""


@dataclass(frozen=True, slots=True)
class Removable:
    """Those one could do without at one step."""

    members: Flags
    """By number of the occupant."""
    held: Ints
    """What all of them hold, and the most that one of them holds: cards, CPUs and memory; shape (2, 3, nodes)."""

    def least(self, table: NodeTable, claim: Claim, places: Ints) -> Ints:
        """Return for each of `places` how many of them would have to go at least; NEVER = it would not help."""
        offers = table.offers
        code = offers.check_offer(claim, places)["code"]
        ok = (code == Code.FITS) | (code == Code.INSUFFICIENT_CPU) | (code == Code.INSUFFICIENT_MEMORY)
        lacking = claim.whole_cards - offers.free_cards(places, claim.vram) if claim.whole_cards else 1
        short = np.stack([np.where(ok, 0, np.maximum(lacking, 1)), claim.cpus - offers.free_cpus[places],
                          claim.memory - offers.free_memory[places]]).clip(min=0)
        total, most = self.held[:, :, places]
        counts = np.where(short > total, NEVER, -(-short // np.maximum(most, 1)))
        least: Ints = counts.max(axis=0).clip(min=1)
        return least


NODES_TRIED = 4
"""Nodes looked at closely, one after the other, when one is sought."""
NODES_LACKING = 32
"""A gang that lacks more nodes than this gets the number, not what to move."""
DOMAINS_TRIED = 3
SETS_TRIED = 60
MAX_STEPS = 3_000
"""Questions asked of single nodes for all models of a plan; later models get no such answer."""


Gone = frozenset[int]
"""Numbers of occupants that are thought away."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Occupants (by number) without which one more replica fits, and the nodes (by place) on which that helps."""

    gone: tuple[int, ...]
    places: tuple[int, ...]


@dataclass
class RemovalSearch:
    """Seeks room for one kind of member after the other; `steps` counts the questions asked of single nodes."""

    occupants: Occupants
    steps: int = 0
    _known: dict[tuple[int, Gone], Offer | None] = field(default_factory=dict)
    _pools: dict[bytes, Removable] = field(default_factory=dict)
    """By who is in it."""

    def pools(self, priority: int) -> Iterator[Removable]:
        """Yield who could go for a model of this priority, each pool wider than the one before."""
        ours, spare, rank = self._ranks
        before = np.zeros(len(ours), dtype=bool)
        for members in (ours & (spare | (rank < priority)), ours & (spare | (rank <= priority)), ours, ours | True):
            if (members != before).any():
                yield self._pool(members)
            before = members

    @cached_property
    def _ranks(self) -> tuple[Flags, Flags, Ints]:
        ours = np.array([one.ours for one in self.occupants.replicas], dtype=bool)
        spare = np.array([not one.wanted for one in self.occupants.replicas], dtype=bool)
        rank = np.array([one.priority or 0 for one in self.occupants.replicas], dtype=np.int64)
        return ours, spare, rank

    @cached_property
    def _holdings(self) -> Ints:
        """One row per occupant and node: occupant, node, cards touched, CPUs, memory."""
        held = ((number, place, -(-gpus // SHARE), cpus, memory) for number, one in enumerate(self.occupants.replicas)
                for place, gpus, cpus, memory in one.holds())
        found = np.fromiter(chain.from_iterable(held), dtype=np.int64).reshape(-1, 5)
        whole, row = np.unique(found[:, 0] * len(self.occupants.nodes) + found[:, 1], return_inverse=True)
        summed = np.zeros((len(whole), 5), dtype=np.int64)
        summed[row, :2] = found[:, :2]
        np.add.at(summed[:, 2:], row, found[:, 2:])
        return summed

    def _pool(self, members: Flags) -> Removable:
        who = members.tobytes()
        if who not in self._pools:
            rows = self._holdings[members[self._holdings[:, 0]]]
            held = np.zeros((2, 3, len(self.occupants.nodes)), dtype=np.int64)
            np.add.at(held[0].T, rows[:, 1], rows[:, 2:])
            np.maximum.at(held[1].T, rows[:, 1], rows[:, 2:])
            self._pools[who] = Removable(members, held)
        return self._pools[who]

    def without(self, place: int, gone: Gone) -> Offer | None:
        """Return what a node would offer; None where the planned rest could then not be placed as planned."""
        gone = gone.intersection(self.occupants.here(place))
        self.steps += 1
        if (place, gone) not in self._known:
            offer, fits = self.occupants.offer_without(place, gone, sure=True)
            self._known[place, gone] = offer if fits else None
        return self._known[place, gone]

    def find(self, missing: Shortfall, priority: int) -> Removal | str:
        """Return the set that makes room for what is `missing`; or why there is none, empty where that is not known."""
        lacking = missing.nodes_needed - len(missing.fitting)
        if missing.shape.same_label is None and lacking <= 0:
            return ""
        if missing.codes.min(initial=Code.NO_NODES) == Code.CARD_MEMORY_UNKNOWN:
            return "a node policy can state the memory of these cards: spec.nodes[].gpuMemory"
        if (too_much := self._too_much(missing, lacking)) is not None:
            return too_much
        hopeless = True
        for pool in self.pools(priority):
            seeker = _Seeker(self, missing, pool)
            hopeless = hopeless and seeker.hopeless
            removal = seeker.seek()
            if removal is not None:
                return removal
        if not len(missing.usable) or not hopeless:
            return ""
        few = "no node it may use" if missing.nodes_needed == 1 else "too few of the nodes it may use"
        value = "" if missing.within is None else f" with {missing.shape.same_label}={missing.within}"
        return f"{few}{value} would have room even when empty"

    def _too_much(self, missing: Shortfall, lacking: int) -> str | None:
        if missing.shape.size > MAX_MEMBERS:
            return f"no remedy is tried for replicas of more than {MAX_MEMBERS} members"
        if missing.shape.same_label is None and lacking > NODES_LACKING:
            return f"{lacking} nodes are missing, too many to name the replicas that would have to go"
        if self.steps > MAX_STEPS:
            return "which replicas would have to go was not worked out: too much else is blocked in this plan"
        return None


@dataclass
class _Seeker:
    """One search: for one kind of member, among one pool."""

    search: RemovalSearch
    missing: Shortfall
    pool: Removable

    @property
    def hopeless(self) -> bool:
        """Return whether there are too few nodes on which it helps at all, even without all of them."""
        helped = int((self._least < NEVER).sum())
        return len(self.missing.fitting) + helped < self.missing.nodes_needed

    def seek(self) -> Removal | None:
        removals = (self._in_domain(domain, lacking) for domain, lacking in self._domains())
        return next((removal for removal in removals if removal is not None), None)

    @cached_property
    def _least(self) -> Ints:
        least = np.full(len(self.missing.table), NEVER)
        places = self.missing.usable
        places = places[self.missing.codes[places] != Code.FITS]
        least[places] = self.pool.least(self.missing.table, self.missing.claim, places)
        return least

    def _domains(self) -> Iterable[tuple[Ints, int]]:
        """Yield sets of nodes with the number that lacks in each, the cheapest first; all nodes where any will do."""
        needed, label = self.missing.nodes_needed, self.missing.shape.same_label
        everywhere = np.arange(len(self._least))
        if label is None or self.missing.group.size == 1:
            return [(everywhere, needed - len(self.missing.fitting))]
        codes = self.missing.table.column(label).codes
        found = []
        for code in np.unique(codes[(self._least < NEVER) & (codes >= 0)]).tolist():
            places = everywhere[codes == code]
            lacking = max(1, needed - int((codes[self.missing.fitting] == code).sum()))
            cheapest = np.sort(self._least[places])[:lacking]
            if len(cheapest) == lacking and cheapest[-1] < NEVER:
                found.append((int(cheapest.sum()), code, places, lacking))
        found.sort(key=lambda one: one[:2])
        return [(places, lacking) for _, _, places, lacking in found[:DOMAINS_TRIED]]

    def _in_domain(self, domain: Ints, lacking: int) -> Removal | None:
        order = domain[self._least[domain] < NEVER]
        order = order[np.argsort(self._least[order], kind="stable")]
        if lacking > NODES_LACKING or len(order) < lacking:
            return None
        if lacking == 1:
            removals = self._one_node(order)
            return removals if removals is not None and self._holds(removals) else None
        gone: Gone = frozenset()
        places: list[int] = []
        for place in order[: 2 * lacking + NODES_TRIED].tolist():
            more: Gone | None = frozenset() if self._fits(place, gone) else self._smallest(place)
            if more is not None:
                gone, places = gone | more, [*places, place]
            if len(places) == lacking:
                removal = Removal(tuple(sorted(gone)), tuple(places))
                return removal if self._holds(removal) else None
        return None

    def _one_node(self, order: Ints) -> Removal | None:
        best: tuple[tuple[int, list[tuple[int, ...]]], Removal] | None = None
        for place in order[:NODES_TRIED].tolist():
            if best is not None and self._least[place] > best[0][0]:
                break
            gone = self._smallest(place)
            if gone is None:
                continue
            rank = len(gone), sorted((self._regret(number, place) for number in gone), reverse=True)
            if best is None or rank < best[0]:
                best = rank, Removal(tuple(sorted(gone)), (place,))
        return best[1] if best else None

    def _smallest(self, place: int) -> Gone | None:
        """Return the smallest set found without which one more member fits on a node."""
        occupants, key = self.search.occupants, self.missing.shape.key
        here = sorted((number for number in occupants.here(place) if self.pool.members[number]
                       and not (occupants.replicas[number].ours and occupants.replicas[number].model == key)),
                      key=lambda number: self._regret(number, place))
        least = int(self._least[place])
        found = self._first_of(place, here, 1) if least == 1 else None
        if found is not None:
            return found
        replicas = frozenset(here)
        if not here or not self._fits(place, replicas):
            return None
        found = replicas
        for number in sorted(here, key=lambda number: (occupants.replicas[number].units(place), tuple(
                -part for part in self._regret(number, place)))):
            if self._fits(place, found - {number}):
                found -= {number}
        for size in range(max(2, least), len(found)):
            smaller = self._first_of(place, here, size)
            if smaller is not None:
                return smaller
        return found

    def _first_of(self, place: int, here: Sequence[int], size: int) -> Gone | None:
        if comb(len(here), size) > SETS_TRIED:
            return None
        sets = map(frozenset, combinations(here, size))
        return next((gone for gone in sets if self._fits(place, gone)), None)

    def _regret(self, number: int, place: int) -> tuple[int, ...]:
        """Rank an occupant, those one could best do without first: spare ones, low priorities, not started yet."""
        one = self.search.occupants.replicas[number]
        return not one.ours, one.wanted, one.priority or 0, not one.planned, one.units(place), number

    def _fits(self, place: int, gone: Gone) -> bool:
        offer = self.search.without(place, gone)
        return offer is not None and take(offer, self.missing.claim) is not None

    def _holds(self, removal: Removal) -> bool:
        """Return whether a whole replica really fits once they are gone."""
        shape, table = self.missing.shape, self.missing.table
        if shape.size == 1:
            return True
        closed = table.closed != Code.FITS
        stood_on = {place for number in removal.gone
                    for place in self.search.occupants.replicas[number].places if not closed[place]}
        offers: dict[int, Offer] = {}
        for place in stood_on:
            offer = self.search.without(place, frozenset(removal.gone))
            if offer is None:
                return False
            offers[place] = offer
        value = None
        if shape.same_label is not None:
            value = table.ledger.nodes[removal.places[0]].labels.get(shape.same_label)
        return count_placed(shape, table, helpful_places(shape, table, sorted(stood_on), value), offers=offers) == 1
