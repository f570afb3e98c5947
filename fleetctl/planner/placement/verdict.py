"""Why one node cannot take one member: the first rule that stops it, with what was needed and what was there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleetctl.documents.quantity import SHARE, format_bytes, format_share
from fleetctl.documents.selector import matches
from fleetctl.planner.placement.cards import Offer, blind_pick, possible_shares, take
from fleetctl.planner.placement.claims import Claim, Seat
from fleetctl.planner.placement.ledger import Ledger, LedgerNode

CLOSEST_FIRST = (
    "INSUFFICIENT_MEMORY", "INSUFFICIENT_CPU", "INSUFFICIENT_VRAM", "CARD_MEMORY_UNKNOWN", "CARD_IN_USE",
    "INSUFFICIENT_GPU", "SLOTS_FULL", "CORDONED", "NODE_DRAINING", "NODE_SELECTOR_MISMATCH", "NO_NODES",
)
"""The codes of a single node, those nearest to success first."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rule that stops a node. `need` and `have` are amounts, shown by `show`; `about` says what they are of."""

    code: str
    need: int = 0
    have: int = 0
    about: str = ""
    show: Callable[[int], str] = str

    @property
    def need_text(self) -> str:
        """Return what is needed, with its unit."""
        return f"{self.show(self.need)}{self.about}" if self.need else self.about


def judge(ledger: Ledger, place: int, seat: Seat, key: str, *, wants_cards: bool) -> Verdict | None:
    """Return why node number `place` cannot take `seat` of model `key` now; None when it can."""
    node = ledger.nodes[place]
    stopped = _closed(node, seat) or _slots(ledger, place, key, wants_cards)
    if stopped:
        return stopped
    if ledger.peek(place, seat.claim) is not None:
        return None
    offer = ledger.offer(place)
    return _cards(offer, seat.claim) or _host(offer, seat.claim)


def _closed(node: LedgerNode, seat: Seat) -> Verdict | None:
    if node.state == "DEAD":
        return Verdict("NO_NODES", about="a node that is alive")
    if not matches(dict(seat.selector), node.labels):
        wanted = ", ".join(f"{key}={value}" for key, value in seat.selector)
        return Verdict("NODE_SELECTOR_MISMATCH", about=f"a node with {wanted}")
    if node.state == "DRAINING":
        return Verdict("NODE_DRAINING", about="a node that is not draining")
    if node.policy.cordoned_by is not None:
        return Verdict("CORDONED", about=f"a node that is not cordoned ({node.policy.cordoned_by})")
    return None


def _slots(ledger: Ledger, place: int, key: str, wants_cards: bool) -> Verdict | None:
    if ledger.free_slots(place, key, wants_cards=wants_cards):
        return None
    cap = ledger.nodes[place].policy.cap_for(wants_cards)
    return Verdict("SLOTS_FULL", 1, 0, f" free slot (cap {cap.limit}: {cap.source})")


def _cards(offer: Offer, claim: Claim) -> Verdict | None:
    if take(offer, Claim(gpus=claim.gpus, vram=claim.vram)) is not None:
        return None
    return _whole(offer, claim) if claim.whole_cards else _share(offer, claim)


def _whole(offer: Offer, claim: Claim) -> Verdict:
    wanted = claim.whole_cards
    free = [card for card in offer.cards if card.fully_free]
    count = min(len(free), max(0, offer.free_gpus) // SHARE)
    if count < wanted:
        return Verdict("INSUFFICIENT_GPU", wanted, count, _of_cards(wanted, "free GPU"))
    clean = [card for card in free if not card.dirty]
    if len(clean) < wanted:
        return Verdict("CARD_IN_USE", wanted, len(clean), _of_cards(wanted, "GPU") + " that nobody else uses")
    known = sorted((card.free_vram for card in clean if card.free_vram is not None), reverse=True)
    if len(known) < wanted:
        return _unknown_memory(claim)
    return _vram(claim, known[wanted - 1])


def _share(offer: Offer, claim: Claim) -> Verdict:
    if not offer.cards:
        return Verdict("INSUFFICIENT_GPU", claim.gpus or SHARE, 0, " of a card", format_share)
    if not claim.gpus and (stopped := _vram_alone(offer, claim)):
        return stopped
    shares = possible_shares(offer, claim)
    pick = next((card for share in shares if (card := blind_pick(offer, share))), None)
    if pick is None:
        most = min(max(card.free_share for card in offer.cards), offer.free_gpus)
        return Verdict("INSUFFICIENT_GPU", min(shares), most, " of one card", format_share)
    if pick.dirty:
        return Verdict("CARD_IN_USE", 1, 0, f" card that nobody else uses (Ray would hand out card {pick.index})")
    if pick.free_vram is None:
        return _unknown_memory(claim)
    best = max(card.free_vram or 0 for card in offer.cards)
    return _vram(claim, best) if best < claim.vram else _vram(claim, pick.free_vram, pick.index)


def _vram_alone(offer: Offer, claim: Claim) -> Verdict | None:
    """Speak of memory, not of shares, where only memory was asked for and no card has it."""
    known = [card for card in offer.cards if card.free_vram is not None]
    if not known:
        return _unknown_memory(claim)
    clean = [card.free_vram or 0 for card in known if not card.dirty]
    if not clean:
        return Verdict("CARD_IN_USE", 1, 0, " card that nobody else uses")
    return _vram(claim, max(clean)) if max(clean) < claim.vram else None


def _vram(claim: Claim, free: int, picked: int | None = None) -> Verdict:
    where = "" if picked is None else f" (Ray would hand out card {picked})"
    return Verdict("INSUFFICIENT_VRAM", claim.vram, free, f" free VRAM on a card{where}", format_bytes)


def _unknown_memory(claim: Claim) -> Verdict:
    return Verdict("CARD_MEMORY_UNKNOWN", claim.vram, 0, " VRAM on a card whose memory is known", format_bytes)


def _host(offer: Offer, claim: Claim) -> Verdict:
    if offer.free_cpus < claim.cpus:
        return Verdict("INSUFFICIENT_CPU", claim.cpus, offer.free_cpus, " free CPUs", format_share)
    return Verdict("INSUFFICIENT_MEMORY", claim.memory, offer.free_memory, " free memory", format_bytes)


def _of_cards(count: int, noun: str) -> str:
    return f" {noun}" if count == 1 else f" {noun}s"
