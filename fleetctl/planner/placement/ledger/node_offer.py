"""Computes what a node offers from its inventory.

Some grants are known per card (the cards of a live member, the `share` of a card). The rest is assigned to cards as Ray
would do it, first to cards whose measured use shows that something is there.

A node is first reduced to the facts that its offer depends on, so that nodes with equal facts are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from fleetctl.documents.inventory import Gpu, Node, ReplicaMember, indices_among
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard
from fleetctl.planner.placement.policies import EffectivePolicy

GIB = 1 << 30

BareCard = tuple[int, int | None, int, int, bool]
"""Index, memory (None = unknown), measured use, the share reported without a holder, and whether its memory is the
host's: then much of the use has nothing to do with the card."""
Grant = tuple[int, int, tuple[int, ...]]
"""A live member's share, its VRAM per card, and the indices of its cards, as far as known."""


class Facts(NamedTuple):
    """Everything that the offer of a node depends on, except its policy. GPUs and CPUs in 1/10000, bytes."""

    cards: tuple[BareCard, ...]
    grants: tuple[Grant, ...]
    gpus_total: int
    gpus_used: int
    free_cpus: int
    free_memory: int
    held: bool
    """A live member is on the node, with or without a card."""
    unreported: int = 0


@dataclass(slots=True)
class _CardLoads:
    """The cards of one node while grants are assigned to them; all lists by row in `cards`.

    `reported` = the share reported without a holder and not assigned yet, `share` and `vram` = what is assigned.
    """

    cards: tuple[BareCard, ...]
    reported: list[int]
    share: list[int]
    vram: list[int]

    def free(self, row: int) -> int:
        return SHARE - self.share[row] - self.reported[row]

    def grant(self, row: int, share: int, vram: int) -> None:
        """Assign a member, or an unknown holder, to a card; without a memory claim it gets its share of the memory."""
        if self.reported[row]:
            self.reported[row] = max(0, self.reported[row] - share)
        self.share[row] = min(SHARE, self.share[row] + share)
        self.vram[row] += vram or share * (self.cards[row][1] or 0) // SHARE

    def put(self, share: int, vram: int) -> None:
        """Assign a grant whose card is not known: whole cards first, then the share below one card."""
        whole, part = divmod(share, SHARE)
        # whole cards are granted on cards that are reported as taken, or else on free ones
        possible = [row for row in range(len(self.cards)) if SHARE in (self.reported[row], self.free(row))]
        taken = sorted(possible, key=lambda row: (self.reported[row] != SHARE, *self._most_used(row)))[:whole]
        for row in taken:
            self.grant(row, SHARE, vram)
        for _ in range(whole - len(taken)):
            if not any(self.free(row) for row in range(len(self.cards))):
                break
            self._spill(SHARE, vram)
        if part:
            self._put_share(part, vram)

    def _put_share(self, share: int, vram: int) -> None:
        rows = range(len(self.cards))
        if reported := [row for row in rows if self.reported[row] >= share]:
            self.grant(min(reported, key=lambda row: (self.reported[row], *self._most_used(row))), share, vram)
        elif room := [row for row in rows if self.free(row) >= share]:
            self.grant(min(room, key=lambda row: (self.free(row), *self._most_used(row))), share, vram)
        else:
            self._spill(share, vram)

    def _most_used(self, row: int) -> tuple[int, int]:
        """A sort key: cards with most measured use first, then by index."""
        index, _, measured, *_ = self.cards[row]
        return -measured, index

    def _spill(self, share: int, vram: int) -> None:
        """Take the share from all cards with something free: no single card holds it, so the real layout is another."""
        for row in sorted(range(len(self.cards)), key=lambda row: (-self.free(row), row)):
            piece = min(share, self.free(row))
            if piece > 0:
                self.grant(row, piece, vram)
                share -= piece

    def finish(self, policy: EffectivePolicy) -> tuple[OfferedCard, ...]:
        """Return the cards for the ledger; shares that are reported and not assigned count as assigned."""
        for row, reported in enumerate(self.reported):
            if reported:
                self.grant(row, reported, 0)
        tries = {card.index: card.tries for card in policy.cooling_cards}
        kept = policy.reserve_vram, policy.resident_memory
        return tuple([_finished(card, share, vram, *kept, tries.get(card[0]))
                      for card, share, vram in zip(self.cards, self.share, self.vram, strict=True)])


@lru_cache(maxsize=1 << 16)
def _finished(
    card: BareCard, share: int, vram: int, reserve: int, residents: int, tries: int | None = None
) -> OfferedCard:
    """Return a card for the ledger; `residents` = the bytes that belong to what is known to live there."""
    index, memory, measured, _, unified = card
    slack = max(GIB, (memory or 0) // 50)
    if share >= SHARE:  # nothing of it is offered, so its free memory does not matter
        return OfferedCard(index, 0, None if memory is None else 0, memory)
    expected = vram + residents
    free = None if memory is None else max(0, memory - max(measured, expected) - reserve)
    foreign = measured - expected if measured > expected + slack and not unified else 0
    return OfferedCard(index, SHARE - share, free, memory, foreign, tries)


def offer_of(node: Node, members: Sequence[ReplicaMember], policy: EffectivePolicy) -> Offer:
    """Return the offer of `node`; `members` = the live members on it, in a fixed order."""
    return offer_from(facts_of(node, members), policy)


def facts_of(node: Node, members: Sequence[ReplicaMember]) -> Facts:
    """Return what the offer of `node` depends on; `members` = the live members on it, in a fixed order."""
    total, used = node.resources.total, node.resources.used
    gpus_total, cpus_used, memory_used = round(total.gpu * SHARE), 0, 0
    for member in members:
        cpus_used += member.cpus
        memory_used += member.memory
    if used is not None:
        cpus_used = max(round(used.cpu * SHARE), cpus_used)
        memory_used = max(used.memory, memory_used)
    gpus_used = round(used.gpu * SHARE) if used is not None else 0
    all_taken = gpus_used >= max(len(node.gpus), gpus_total // SHARE) * SHARE
    cards = _bare_cards(node.gpus, gpus_total // SHARE, all_taken=all_taken)
    by_uuid, indices = {gpu.uuid: gpu.index for gpu in node.gpus if gpu.uuid}, {card[0] for card in cards}
    grants = () if all_taken else tuple([(member.gpus, member.vram, tuple(indices_among(member, by_uuid, indices)))
                                         for member in members if member.gpus])
    return Facts(
        cards, grants, gpus_total, gpus_used,
        max(0, round(total.cpu * SHARE) - cpus_used), max(0, int(total.memory - memory_used)), bool(members),
        node.unreported_cards,
    )


def offer_from(facts: Facts, policy: EffectivePolicy) -> Offer:
    """Return the offer of a node with these facts under a policy."""
    if facts.gpus_used >= len(facts.cards) * SHARE:
        return Offer(_all_taken(facts.cards, policy.gpu_memory), max(0, facts.gpus_total - facts.gpus_used),
                     facts.free_cpus, facts.free_memory, empty=not facts.held and not facts.gpus_used)
    cards = tuple([(card[0], card[1] or policy.gpu_memory, *card[2:]) for card in facts.cards])
    loads = _CardLoads(cards, [card[3] for card in cards], [0] * len(cards), [0] * len(cards))
    row_of = {card[0]: row for row, card in enumerate(cards)}
    unplaced: list[Grant] = []
    for grant in facts.grants:
        gpus, vram, indices = grant
        if len(indices) * SHARE < gpus:
            unplaced.append(grant)
            continue
        for index in indices:
            loads.grant(row_of[index], min(SHARE, gpus), vram)
    for gpus, vram, _ in sorted(unplaced, key=lambda grant: -grant[0]):
        loads.put(gpus, vram)
    assigned = sum(loads.share) + sum(loads.reported)
    if facts.gpus_used > assigned:
        loads.put(facts.gpus_used - assigned, 0)
    return Offer(
        loads.finish(policy),
        max(0, facts.gpus_total - max(facts.gpus_used, assigned)), facts.free_cpus, facts.free_memory,
        empty=not facts.held and not facts.gpus_used and not assigned, unreported=facts.unreported,
    )


@lru_cache(maxsize=1 << 12)
def _all_taken(cards: tuple[BareCard, ...], gpu_memory: int | None) -> tuple[OfferedCard, ...]:
    """Return the cards of a node without any free share; cached, as most nodes of a full fleet are such."""
    return tuple([_finished((index, memory or gpu_memory, 0, 0, False), SHARE, 0, 0, 0) for index, memory, *_ in cards])


def _bare_cards(gpus: Sequence[Gpu], count: int, *, all_taken: bool) -> tuple[BareCard, ...]:
    """Return the node's cards by index; cards that it has but does not list are added, without any details.

    If all cards are taken, their use is left out, so that more nodes are equal.
    """
    cards: list[BareCard]
    if all_taken:
        cards = [(gpu.index, gpu.memory_total or None, 0, 0, False) for gpu in gpus]
    else:
        cards = [(gpu.index, gpu.memory_total or None, gpu.memory_used or 0,
                  round(gpu.share * SHARE) if gpu.share else 0, gpu.unified) for gpu in gpus]
    if len(cards) < count:
        taken = {card[0] for card in cards}
        free = [index for index in range(count + len(taken)) if index not in taken]
        cards += [(index, None, 0, 0, False) for index in free[: count - len(cards)]]
    cards.sort(key=itemgetter(0))
    return tuple(cards)
