"""What a node has left, from what the inventory says about it.

Some of what is granted is known per card (the cards a live member names, `share` of a card); the rest is laid on cards
the way Ray would have done it, on those cards first whose measured use shows that somebody is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetctl.documents.inventory import Gpu, Node, ReplicaMember, card_indices
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.cards import Card, Offer
from fleetctl.planner.placement.policies import EffectivePolicy

GIB = 1 << 30


@dataclass(slots=True)
class _Laid:
    """A card while what is granted is laid on it. `told` = share the inventory reports without naming a holder."""

    index: int
    memory: int | None
    measured: int
    told: int = 0
    share: int = 0
    vram: int = 0

    @property
    def free(self) -> int:
        return SHARE - self.share - self.told

    def grant(self, share: int, vram: int) -> None:
        """Lay a member (or an unknown holder) here; without a memory claim it is granted its share of the memory."""
        self.told -= min(self.told, share)
        self.share = min(SHARE, self.share + share)
        self.vram += vram or share * (self.memory or 0) // SHARE

    def finish(self, reserve: int) -> Card:
        """Return the card as the ledger sees it."""
        if self.told:
            self.grant(self.told, 0)
        slack = max(GIB, (self.memory or 0) // 50)
        free = None if self.memory is None else max(0, self.memory - max(self.measured, self.vram) - reserve)
        return Card(self.index, SHARE - self.share, free, self.memory, dirty=self.measured > self.vram + slack)


@dataclass(slots=True)
class _Bench:
    """The cards of one node while they are being laid."""

    cards: list[_Laid] = field(default_factory=list)

    def lay(self, share: int, vram: int) -> None:
        """Lay a grant whose card is not known: whole cards first, then the share below one card."""
        whole, part = divmod(share, SHARE)
        for _ in range(whole):
            self._lay_piece(SHARE, vram)
        if part:
            self._lay_piece(part, vram)

    def _lay_piece(self, share: int, vram: int) -> None:
        told = [card for card in self.cards if card.told >= share]
        if told:
            min(told, key=lambda card: (card.told, -card.measured, card.index)).grant(share, vram)
            return
        room = [card for card in self.cards if card.free >= share]
        if room:
            min(room, key=lambda card: (card.free, -card.measured, card.index)).grant(share, vram)
            return
        self._spill(share, vram)

    def _spill(self, share: int, vram: int) -> None:
        """No single card holds it, so the layout is not as we think: take it from wherever something is free."""
        for card in sorted(self.cards, key=lambda card: (-card.free, card.index)):
            piece = min(share, card.free)
            if piece > 0:
                card.grant(piece, vram)
                share -= piece


def offer_of(node: Node, members: Sequence[ReplicaMember], policy: EffectivePolicy) -> Offer:
    """Return what `node` still offers; `members` are the live members on it, in a fixed order."""
    total, used = node.resources.total, node.resources.used
    gpus_total = round(total.gpu * SHARE)
    gpus_used = round(used.gpu * SHARE) if used else 0
    cpus_used = max(round(used.cpu * SHARE) if used else 0, sum(member.cpus for member in members))
    memory_used = max(used.memory if used else 0, sum(member.memory for member in members))
    bare = _all_cards(node, gpus_total // SHARE)
    bench = _Bench([_bare_card(card, policy) for card in bare])
    _lay_members(bench, members, bare)
    laid = sum(card.share + card.told for card in bench.cards)
    if gpus_used > laid:
        bench.lay(gpus_used - laid, 0)
    cards = tuple(card.finish(policy.reserve_vram) for card in bench.cards)
    return Offer(
        cards,
        free_gpus=max(0, gpus_total - max(gpus_used, laid)),
        free_cpus=max(0, round(total.cpu * SHARE) - cpus_used),
        free_memory=max(0, int(total.memory - memory_used)),
        empty=not members and not gpus_used and not laid,
    )


def _all_cards(node: Node, count: int) -> list[Gpu]:
    """Return the node's cards by index; those it has but does not list are filled in, with nothing known of them."""
    taken = {card.index for card in node.gpus}
    free = [index for index in range(count + len(taken)) if index not in taken]
    unlisted = [Gpu(index=index) for index in free[: max(0, count - len(node.gpus))]]
    return sorted([*node.gpus, *unlisted], key=lambda card: card.index)


def _bare_card(gpu: Gpu, policy: EffectivePolicy) -> _Laid:
    memory = gpu.memory_total or policy.gpu_memory
    return _Laid(gpu.index, memory, gpu.memory_used or 0, told=round((gpu.share or 0) * SHARE))


def _lay_members(bench: _Bench, members: Sequence[ReplicaMember], cards: Sequence[Gpu]) -> None:
    by_index = {card.index: card for card in bench.cards}
    unplaced: list[ReplicaMember] = []
    for member in members:
        known = [by_index[index] for index in card_indices(member, cards)]
        if member.gpus and len(known) * SHARE >= member.gpus:
            for card in known:
                card.grant(min(SHARE, member.gpus), member.vram)
        elif member.gpus:
            unplaced.append(member)
    for member in sorted(unplaced, key=lambda member: -member.gpus):
        bench.lay(member.gpus, member.vram)
