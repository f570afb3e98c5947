"""What the arrays say about an offer is what a walk over its cards says."""

from __future__ import annotations

from how_many import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from one_node import judge_slowly

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Card, Offer, take
from fleetctl.planner.placement.reasons.codes import CLOSEST_FIRST, FITS
from fleetctl.planner.placement.reasons.offer_table import OfferTable
from fleetctl.planner.placement.reasons.verdict import judge_offers, refusal

GIB = 1 << 30
many = settings(max_examples=cases(150), deadline=None, derandomize=True)
Shares = st.sampled_from([0, 1000, 2500, 4000, 5000, 6000, 7500, SHARE, SHARE, SHARE])


@st.composite
def _offers(draw: st.DrawFn) -> Offer:
    cards = []
    for index in range(draw(st.integers(0, 4))):
        memory = draw(st.sampled_from([None, 16 * GIB, 24 * GIB, 80 * GIB]))
        free = None if memory is None else draw(st.sampled_from([0, 3 * GIB, 7 * GIB, memory]))
        cards.append(Card(index, draw(Shares), free, memory, dirty=draw(st.integers(0, 4)) == 0))
    total = sum(card.free_share for card in cards)
    return Offer(tuple(cards), draw(st.sampled_from([total, total, max(0, total - SHARE), 0])),
                 draw(st.sampled_from([0, 20_000, 80_000])), draw(st.sampled_from([0, 4 * GIB])))


Claims = st.builds(
    Claim, gpus=st.sampled_from([0, 0, 1000, 4000, 5000, 6000, SHARE, SHARE, 2 * SHARE, 3 * SHARE]),
    vram=st.sampled_from([0, 0, 2 * GIB, 7 * GIB, 20 * GIB, 80 * GIB]), cpus=st.sampled_from([0, 10_000, 50_000]),
    memory=st.sampled_from([0, GIB, 8 * GIB]),
)


@many
@given(st.lists(_offers(), min_size=1, max_size=6), Claims)
def test_every_row_says_what_a_walk_over_its_cards_says(offers: list[Offer], claim: Claim) -> None:
    found = judge_offers(OfferTable.of(offers), claim)
    for row, offer in enumerate(offers):
        slow = judge_slowly(offer, claim)
        code = int(found.code[row])
        assert (code == FITS) == (take(offer, claim) is not None)
        if slow is not None:
            fast = CLOSEST_FIRST[code], int(found.need[row]), int(found.have[row]), int(found.card[row])
            assert fast == slow


def test_a_refusal_has_need_and_what_there_is_in_words() -> None:
    offer = Offer((Card(0, 4000, 3 * GIB, 16 * GIB), Card(1, SHARE, 16 * GIB, 16 * GIB)), 14_000, 20_000, GIB)
    assert refusal(offer, Claim(gpus=20_000)) == ("2 free GPUs", "1")
    assert refusal(offer, Claim(gpus=4000, vram=4 * GIB)) == (
        "4Gi free VRAM on a card (Ray would hand out card 0)", "3Gi")
    assert refusal(offer, Claim(cpus=30_000)) == ("3 free CPUs", "2")
    assert refusal(offer, Claim(gpus=10_000)) is None
