"""A node as it would be read once some members have ended there, with what they held given back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fleetctl.documents.inventory import Amounts, Gpu, Node, ReplicaMember, card_indices
from fleetctl.documents.quantity import SHARE


def without_members(node: Node, members: Iterable[ReplicaMember], *, sure: bool) -> Node:
    """Return `node` without `members`.

    `sure` = count on no more than they claimed, on cards that are known to be theirs. Else a whole card comes free with
    all its memory, and a member that names no card had those with the most memory in use.
    """
    ended = list(members)
    cards = {card.index: card for card in node.gpus}
    for member in ended:
        known = card_indices(member, node.gpus)
        for index in known or ([] if sure else _likely(list(cards.values()), member)):
            cards[index] = _without_member(cards[index], member, sure=sure)
    used = node.resources.used
    if used is not None:
        used = Amounts(
            gpu=max(0, round(used.gpu * SHARE) - sum(member.gpus for member in ended)) / SHARE,
            cpu=max(0, round(used.cpu * SHARE) - sum(member.cpus for member in ended)) / SHARE,
            memory=max(0, used.memory - sum(member.memory for member in ended)),
        )
    resources = node.resources.model_copy(update={"used": used})
    return node.model_copy(update={"gpus": list(cards.values()), "resources": resources})


def _likely(cards: Sequence[Gpu], member: ReplicaMember) -> list[int]:
    by_use = sorted(cards, key=lambda card: (-(card.memory_used or 0), card.index))
    return [card.index for card in by_use[:-(-member.gpus // SHARE)]]


def _without_member(card: Gpu, member: ReplicaMember, *, sure: bool) -> Gpu:
    share, size = min(SHARE, member.gpus), card.memory_total or 0
    granted = share * size // SHARE
    memory = member.vram or granted if sure else max(member.vram, granted) if share < SHARE else size
    left = None if card.share is None else max(0, round(card.share * SHARE) - share) / SHARE
    measured = None if card.memory_used is None else max(0, card.memory_used - memory)
    return card.model_copy(update={"share": left, "memory_used": measured})
