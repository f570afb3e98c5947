"""Which replicas would have to go to make room: named, never removed.

On each node the smallest set that helps; for a gang, on as many nodes as it lacks. The search starts among replicas
that matter less than the waiting model (of lower priority, or beyond their target), then takes in those of its
priority, the whole fleet, and finally everything else. Replicas of the model itself are not named, since another one
would have to come in their place; only surplus ones of another variant, beside which a minimum lacks room, are.

For each of these pools of replicas, arrays hold by node what they take together and the most that one of them takes.
That bounds from below how many would have to go, without a closer look at any node.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.ledger.cards import Offer, take
from fleetctl.planner.placement.occupants import Occupants
from fleetctl.planner.placement.reasons.check import Code
from fleetctl.planner.placement.reasons.node_shapes import MAX_MEMBERS, count_placed, helpful_places
from fleetctl.planner.placement.reasons.node_table import Shortfall
from fleetctl.planner.placement.tally import Flags, Ints

NEVER = 1 << 30
"""As a count of replicas: not even without all of them."""
HOPELESS = "would have room even if no replica ran there"
NODES_TRIED = 4
"""Nodes examined closely, one after another, when one is needed."""
NODES_LACKING = 32
"""For a gang that lacks more nodes, only the number is reported, not what to move."""
DOMAINS_TRIED = 3
SETS_TRIED = 60
MAX_STEPS = 3_000
"""Offers computed for all models of a plan together; later models get no answer."""

Gone = frozenset[int]
"""Numbers of occupants assumed to be gone."""


class Pool(NamedTuple):
    """The replicas that may be named at one stage of the search.

    `members` by number of the occupant; `held` = the total and the largest single holding of cards, CPUs and memory,
    shape (2, 3, nodes).
    """

    members: Flags
    held: Ints


class Removal(NamedTuple):
    """Occupants (by number) without which one more replica fits, and the nodes (by place) where that makes room."""

    gone: tuple[int, ...]
    places: tuple[int, ...]


class RemovalSearch:
    """Finds removals for one shortfall after another; `steps` counts the offers that were asked for.

    By occupant: whether it is of this fleet, whether it is spare, and its priority. `_held` = for each `_pairs` of an
    occupant and a node, the cards touched there, CPUs and memory.
    """

    def __init__(self, occupants: Occupants) -> None:
        self.occupants, self.steps = occupants, 0
        self._ours: Flags = np.array([one.ours for one in occupants.replicas], dtype=bool)
        self._spare: Flags = np.array([not one.wanted for one in occupants.replicas], dtype=bool)
        self._priority: Ints = np.array([one.priority or 0 for one in occupants.replicas], dtype=np.int64)
        held = [(number, place, -(-gpus // SHARE), cpus, memory) for number, one in enumerate(occupants.replicas)
                for place, gpus, cpus, memory in one.holds()]
        members = np.array(held, dtype=np.int64).reshape(-1, 5)
        self._pairs, row = np.unique(members[:, :2], axis=0, return_inverse=True)
        self._held = np.zeros((len(self._pairs), 3), dtype=np.int64)
        np.add.at(self._held, row.ravel(), members[:, 2:])
        self._offers: dict[tuple[int, Gone], Offer | None] = {}
        self._pools: dict[bytes, Pool] = {}
        """By the members as bytes."""

    def find(self, missing: Shortfall, priority: int) -> Removal | str:
        """Return what makes room for the `missing` member, or why there is nothing; empty if that is not known."""
        if (why_not := self._why_not(missing)) is not None:
            return why_not
        ours, spare, rank, hopeless = self._ours, self._spare, self._priority, True
        before = np.zeros(len(ours), dtype=bool)
        for members in (ours & (spare | (rank < priority)), ours & (spare | (rank <= priority)), ours, ours | True):
            if (members != before).any():
                seeker = _Seeker(self, missing, self._pool(members))
                if (removal := seeker.seek()) is not None:
                    return removal
                hopeless = seeker.is_hopeless  # each pool contains the one before
            before = members
        if not len(missing.usable) or not hopeless:
            return ""
        few = "no node it may use" if missing.nodes_needed == 1 else "too few of the nodes it may use"
        value = "" if missing.within is None else f" with {missing.shape.same_label}={missing.within}"
        return f"{few}{value} {HOPELESS}"

    def _why_not(self, missing: Shortfall) -> str | None:
        """Say why no removal is sought, empty if nothing is to be said; None if one is sought."""
        lacking = missing.nodes_needed - len(missing.fitting) if missing.shape.same_label is None else 1
        if lacking <= 0:
            return ""
        if missing.codes.min(initial=Code.NO_NODES) == Code.CARD_MEMORY_UNKNOWN:
            return "a node policy can state the memory of these cards: spec.nodes[].gpuMemory"
        if missing.shape.size > MAX_MEMBERS:
            return f"no remedy is tried for replicas of more than {MAX_MEMBERS} members"
        if lacking > NODES_LACKING:
            return f"{lacking} nodes are missing, too many to name the replicas that would have to go"
        if self.steps > MAX_STEPS:
            return "which replicas would have to go was not computed: too much else is blocked in this plan"
        return None

    def without(self, place: int, gone: Gone) -> Offer | None:
        """Return what a node would offer; None if the rest of the plan could then not be placed there as planned."""
        gone = gone.intersection(self.occupants.here(place))
        self.steps += 1
        if (place, gone) not in self._offers:
            offer, fits = self.occupants.offer_without(place, gone, sure=True)
            self._offers[place, gone] = offer if fits else None
        return self._offers[place, gone]

    def _pool(self, members: Flags) -> Pool:
        key = members.tobytes()
        if key not in self._pools:
            chosen = members[self._pairs[:, 0]]
            places, amounts = self._pairs[chosen, 1], self._held[chosen]
            held = np.zeros((2, 3, len(self.occupants.nodes)), dtype=np.int64)
            np.add.at(held[0].T, places, amounts)
            np.maximum.at(held[1].T, places, amounts)
            self._pools[key] = Pool(members, held)
        return self._pools[key]


def _least_removed(missing: Shortfall, pool: Pool) -> Ints:
    """Return by node a lower bound on how many would have to go; NEVER also for nodes that fit or cannot be used."""
    claim, table, codes = missing.claim, missing.table, missing.codes
    places = np.flatnonzero((codes != Code.FITS) & (codes < Code.SLOTS_FULL))
    cards_fit = table.check_offers(claim, places)["code"] <= Code.INSUFFICIENT_CPU
    lacking = claim.whole_cards - table.free_cards(places, claim.vram) if claim.whole_cards else 1
    short = np.stack([np.where(cards_fit, 0, np.maximum(lacking, 1)), claim.cpus - table.free_cpus[places],
                      claim.memory - table.free_memory[places]]).clip(min=0)
    total, largest = pool.held[:, :, places]
    counts = np.where(short > total, NEVER, -(-short // np.maximum(largest, 1)))
    least = np.full(len(codes), NEVER)
    least[places] = counts.max(axis=0).clip(min=1)
    return least


class _Seeker:
    """One search, for one shortfall in one pool; hopeless if too few nodes would have room without the whole pool."""

    def __init__(self, search: RemovalSearch, missing: Shortfall, pool: Pool) -> None:
        self.search, self.missing, self.pool = search, missing, pool
        self._least = _least_removed(missing, pool)
        helped = int((self._least < NEVER).sum())
        self.is_hopeless = len(missing.fitting) + helped < missing.nodes_needed

    def seek(self) -> Removal | None:
        """Return the first removal that makes room, in the cheapest sets of nodes."""
        for domain, lacking in self._domains():
            nodes = domain[self._least[domain] < NEVER]
            order = nodes[np.argsort(self._least[nodes], kind="stable")].tolist()
            if lacking <= len(order) and lacking <= NODES_LACKING:
                gone, places = self._on_nodes(order, lacking)
                if len(places) == lacking and self._makes_room(removal := Removal(tuple(sorted(gone)), places)):
                    return removal
        return None

    def _domains(self) -> list[tuple[Ints, int]]:
        """Return sets of nodes and how many nodes each lacks, cheapest first; one set if any node will do."""
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

    def _on_nodes(self, order: Sequence[int], lacking: int) -> tuple[Gone, tuple[int, ...]]:
        """Return what has to go on as many of these nodes as are lacking, and the nodes; fewer if none helps there.

        If one node is lacking, the first few are compared.
        """
        gone, places = Gone(), tuple[int, ...]()
        best: tuple[int, list[tuple[int, ...]]] | None = None
        for place in order[:NODES_TRIED if lacking == 1 else 2 * lacking + NODES_TRIED]:
            if len(places) == lacking and (best is None or self._least[place] > best[0]):
                break
            more = gone if lacking > 1 and self._fits(place, gone) else self._smallest(place)
            if more is None:
                continue
            if lacking > 1:
                gone, places = gone | more, (*places, place)
                continue
            rank = len(more), sorted((self._regret(number, place) for number in more), reverse=True)
            if best is None or rank < best:
                best, gone, places = rank, more, (place,)
        return gone, places

    def _smallest(self, place: int) -> Gone | None:
        """Return the smallest set found without which one more member fits on a node."""
        occupants, key = self.search.occupants, self.missing.shape.key
        here = sorted((number for number in occupants.here(place) if self.pool.members[number]
                       and not ((one := occupants.replicas[number]).ours and one.model == key
                                and (one.wanted or not one.variant))),
                      key=lambda number: self._regret(number, place))
        least = int(self._least[place])
        if least == 1 and (single := self._first_of(place, here, 1)) is not None:
            return single
        found = frozenset(here)
        if not here or not self._fits(place, found):
            return None
        hardest_first = here[::-1]
        for number in sorted(hardest_first, key=lambda number: occupants.replicas[number].units(place)):
            if self._fits(place, found - {number}):
                found -= {number}
        sets = (self._first_of(place, here, size) for size in range(max(2, least), len(found)))
        return next((smaller for smaller in sets if smaller is not None), found)

    def _first_of(self, place: int, here: Sequence[int], size: int) -> Gone | None:
        if comb(len(here), size) > SETS_TRIED:
            return None
        sets = map(frozenset, combinations(here, size))
        return next((gone for gone in sets if self._fits(place, gone)), None)

    def _regret(self, number: int, place: int) -> tuple[int, ...]:
        """Rank an occupant, the easiest to spare first: of this fleet, spare, of low priority, not started yet."""
        one = self.search.occupants.replicas[number]
        return not one.ours, one.wanted, one.priority or 0, not one.planned, one.units(place), number

    def _fits(self, place: int, gone: Gone) -> bool:
        offer = self.search.without(place, gone)
        return offer is not None and take(offer, self.missing.claim) is not None

    def _makes_room(self, removal: Removal) -> bool:
        """Return whether a whole replica really fits once they are gone."""
        shape, table = self.missing.shape, self.missing.table
        if shape.size == 1:
            return True
        freed = {place for number in removal.gone for place in self.search.occupants.replicas[number].places
                 if table.closed[place] == Code.FITS}
        offers: dict[int, Offer] = {}
        for place in freed:
            offer = self.search.without(place, frozenset(removal.gone))
            if offer is None:
                return False
            offers[place] = offer
        value = None
        if shape.same_label is not None:
            value = table.ledger.nodes[removal.places[0]].labels.get(shape.same_label)
        return count_placed(shape, table, helpful_places(shape, table, sorted(freed), value), offers=offers) == 1
