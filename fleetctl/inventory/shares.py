"""How much of each single card Ray has granted, where that can be told.

Ray's books are per node; which card an actor got is known from the replica itself (UUIDs and indices in its repr) or
from its worker's statistics (slots, counted like the node's cards). Only when these together explain everything that
is in use on the node is every card's share known; otherwise it is left open.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetctl.documents.inventory import Gpu, Replica, ReplicaMember, card_indices
from fleetctl.documents.quantity import SHARE

_GPU_SLOTS = re.compile(r"GPU(?:Group[0-9A-Za-z]{36})?")
"""A worker's GPUs, its own or out of any bundle of a placement group, after the dashboard's rewriting of names."""


def with_shares(cards: Sequence[Gpu], granted: Mapping[int, int], used_gpus: int) -> list[Gpu]:
    """Return the cards of one node with their share filled in.

    `granted` is card index -> 1/10000 known to be granted, `used_gpus` the 1/10000 in use on the whole node.
    """
    everything_explained = sum(granted.values()) == used_gpus
    shares = {card.index: granted.get(card.index, 0) for card in cards}
    return [
        card.model_copy(update={"share": shares[card.index] / SHARE})
        if shares[card.index] <= SHARE and (everything_explained or shares[card.index] == SHARE) else card
        for card in cards
    ]


def granted_by_card(cards: Sequence[Gpu], members: Sequence[ReplicaMember], workers: Sequence[Any], *,
                    declared_gpus: int, live_actors: frozenset[str]) -> dict[int, int]:
    """Return card index -> 1/10000 granted on one node: what its `members` report, and the slots of other actors.

    Worker statistics lag; those of actors not in `live_actors` (the live ones no replica reports for) are left out.
    Slots count only where the node shows as many cards as it declares, and where the card has so much left: a member of
    a gang may be reported and have slots.
    """
    granted: defaultdict[int, int] = defaultdict(int)
    for member in members:
        for index in card_indices(member, cards):
            granted[index] += min(member.gpus, SHARE)
    if len(cards) == declared_gpus // SHARE:
        for slot, share in _slots(workers, live_actors):
            if 0 <= slot < len(cards) and granted[cards[slot].index] + share <= SHARE:
                granted[cards[slot].index] += share
    return dict(granted)


def reports_its_cards(replica: Replica) -> bool:
    """Tell whether the replica says which cards its members hold."""
    return all(not member.gpus or member.gpu_uuids or member.gpu_indices for member in replica.members)


def holds_cards(worker: object) -> bool:
    """Return whether the statistics of a worker speak of GPUs."""
    used = worker.get("usedResources") if isinstance(worker, dict) else None
    return isinstance(used, dict) and any(map(_GPU_SLOTS.fullmatch, used))


def _slots(workers: Sequence[Any], live_actors: frozenset[str]) -> Iterator[tuple[int, int]]:
    for worker in workers:
        used = worker.get("usedResources") if isinstance(worker, dict) else None
        if not isinstance(used, dict) or worker.get("actorId") not in live_actors:
            continue
        for name, amount in used.items():
            if _GPU_SLOTS.fullmatch(name) and isinstance(amount, dict):
                yield from _read_slots(amount.get("resourceSlots"))


def _read_slots(slots: object) -> Iterator[tuple[int, int]]:
    for slot in slots if isinstance(slots, list) else []:
        try:
            place = int(slot["slot"]), round(float(slot["allocation"]) * SHARE)
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        yield place
