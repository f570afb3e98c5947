"""Why an offer refuses a claim: reported exactly if `take` refuses it, with amounts that show why."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard, take
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.policies import effective_policy
from fleetctl.planner.placement.reasons.check import Check, Code, check_offer, refusal
from fleetctl.planner.placement.reasons.node_table import NodeTable

GIB = 1 << 30
many = settings(max_examples=cases(150), deadline=None, derandomize=True)
Shares = st.sampled_from([0, 1000, 2500, 4000, 5000, 6000, 7500, SHARE, SHARE, SHARE])


@st.composite
def _offers(draw: st.DrawFn) -> Offer:
    cards = []
    for index in range(draw(st.integers(0, 4))):
        memory = draw(st.sampled_from([None, 16 * GIB, 24 * GIB, 80 * GIB]))
        free = None if memory is None else draw(st.sampled_from([0, 3 * GIB, 7 * GIB, memory]))
        cards.append(OfferedCard(index, draw(Shares), free, memory, foreign=2 * GIB * (draw(st.integers(0, 4)) == 0)))
    total = sum(card.free_share for card in cards)
    return Offer(tuple(cards), draw(st.sampled_from([total, total, max(0, total - SHARE), 0])),
                 draw(st.sampled_from([0, 20_000, 80_000])), draw(st.sampled_from([0, 4 * GIB])))


Claims = st.builds(
    Claim, gpus=st.sampled_from([0, 0, 1000, 4000, 5000, 6000, SHARE, SHARE, 2 * SHARE, 3 * SHARE]),
    vram=st.sampled_from([0, 0, 2 * GIB, 7 * GIB, 20 * GIB, 80 * GIB]), cpus=st.sampled_from([0, 10_000, 50_000]),
    memory=st.sampled_from([0, GIB, 8 * GIB]),
)


@many
@given(_offers(), Claims)
def test_a_claim_that_does_not_fit_is_refused_with_amounts_that_show_why(offer: Offer, claim: Claim) -> None:
    found = check_offer(offer, claim)
    assert (found.code == Code.FITS) == (take(offer, claim) is not None)
    assert found.code == Code.FITS or found.have < found.need


@many
@given(_offers(), Claims)
def test_cards_are_blamed_before_cpus_and_cpus_before_memory(offer: Offer, claim: Claim) -> None:
    code = check_offer(offer, claim).code
    plenty = offer._replace(free_cpus=1 << 60, free_memory=1 << 60)
    assert (code in (Code.INSUFFICIENT_CPU, Code.INSUFFICIENT_MEMORY, Code.FITS)) == (take(plenty, claim) is not None)
    assert (code == Code.INSUFFICIENT_CPU) <= (offer.free_cpus < claim.cpus)
    assert (code == Code.INSUFFICIENT_MEMORY) <= (offer.free_cpus >= claim.cpus and offer.free_memory < claim.memory)


@many
@given(st.lists(_offers(), min_size=1, max_size=6), Claims)
def test_the_table_gives_each_offer_the_same_check_as_computing_it_alone(offers: list[Offer], claim: Claim) -> None:
    policy = effective_policy((), {})
    nodes = [LedgerNode(f"n{number}", f"n{number}", "ALIVE", {}, policy) for number in range(len(offers))]
    table, places = NodeTable(Ledger.opened(nodes, offers)), np.arange(len(offers))
    assert table.check_offers(claim, places).tolist() == [tuple(check_offer(offer, claim)) for offer in offers]
    for vram in (0, claim.vram):
        for place, free in enumerate(table.free_cards(places, vram).tolist()):
            whole = [take(offers[place], Claim(count * SHARE, vram)) for count in range(1, 6)]
            assert free == sum(taken is not None for taken in whole)


def offer(*cards: OfferedCard, gpus: int | None = None) -> Offer:
    return Offer(cards, sum(card.free_share for card in cards) if gpus is None else gpus)


FREE, OLD = OfferedCard(0, SHARE, 24 * GIB, 24 * GIB), OfferedCard(1, SHARE, 16 * GIB, 16 * GIB)
DIRTY, UNKNOWN = OfferedCard(2, SHARE, 24 * GIB, 24 * GIB, 2 * GIB), OfferedCard(3)
HALF, FULL = OfferedCard(4, 5000, 3 * GIB, 24 * GIB), OfferedCard(5, 0, 0, 24 * GIB)


@pytest.mark.parametrize(("on", "claim", "check"), [
    (offer(FREE, HALF), Claim(2 * SHARE), Check(Code.INSUFFICIENT_GPU, 2, 1)),
    (offer(FREE, OLD, gpus=SHARE), Claim(2 * SHARE), Check(Code.INSUFFICIENT_GPU, 2, 1)),
    (offer(FREE, DIRTY), Claim(2 * SHARE), Check(Code.CARD_IN_USE, 2, 1)),
    (offer(FREE, UNKNOWN), Claim(2 * SHARE, GIB), Check(Code.CARD_MEMORY_UNKNOWN, GIB)),
    (offer(FREE, OLD), Claim(2 * SHARE, 20 * GIB), Check(Code.INSUFFICIENT_VRAM, 20 * GIB, 16 * GIB)),
    (offer(FULL, OLD), Claim(SHARE, 80 * GIB), Check(Code.INSUFFICIENT_VRAM, 80 * GIB, 24 * GIB)),
    (offer(HALF, FULL), Claim(6000), Check(Code.INSUFFICIENT_GPU, 6000, 5000)),
    (offer(DIRTY), Claim(9500), Check(Code.CARD_IN_USE, 1, 0, 2)),
    (offer(DIRTY), Claim(9000), Check(Code.FITS)),
    (offer(DIRTY._replace(memory=None, free_vram=None)), Claim(100), Check(Code.CARD_IN_USE, 1, 0, 2)),
    (offer(DIRTY), Claim(SHARE, GIB), Check(Code.CARD_IN_USE, 1)),
    (offer(UNKNOWN), Claim(5000, GIB), Check(Code.CARD_MEMORY_UNKNOWN, GIB)),
    (offer(FREE, HALF), Claim(4000, 4 * GIB), Check(Code.INSUFFICIENT_VRAM, 4 * GIB, 3 * GIB, 4)),
    (offer(HALF, FULL), Claim(4000, 4 * GIB), Check(Code.INSUFFICIENT_VRAM, 4 * GIB, 3 * GIB)),
    (offer(), Claim(vram=GIB), Check(Code.INSUFFICIENT_GPU, SHARE, 0)),
    (offer(UNKNOWN), Claim(vram=GIB), Check(Code.CARD_MEMORY_UNKNOWN, GIB)),
    (offer(DIRTY, UNKNOWN), Claim(vram=GIB), Check(Code.FITS)),
    (offer(DIRTY), Claim(vram=25 * GIB), Check(Code.INSUFFICIENT_VRAM, 25 * GIB, 24 * GIB)),
    (offer(FREE._replace(tries=0), UNKNOWN), Claim(vram=GIB), Check(Code.CARD_COOLING, 1)),
    (offer(HALF, FULL), Claim(vram=4 * GIB), Check(Code.INSUFFICIENT_VRAM, 4 * GIB, 3 * GIB)),
    (offer(HALF._replace(free_share=1000)), Claim(vram=3 * GIB), Check(Code.INSUFFICIENT_GPU, 1250, 1000)),
])
def test_the_first_rule_that_stops_a_claim_is_named(on: Offer, claim: Claim, check: Check) -> None:
    assert check_offer(on, claim) == check


def test_a_refusal_states_what_is_needed_and_offered() -> None:
    cards = OfferedCard(0, 4000, 3 * GIB, 16 * GIB), OfferedCard(1, SHARE, 16 * GIB, 16 * GIB)
    on = Offer(cards, 14_000, 20_000, GIB)
    assert refusal(on, Claim(gpus=20_000)) == ("2 free GPUs", "1")
    assert refusal(on, Claim(gpus=4000, vram=4 * GIB)) == (
        "4Gi free VRAM on a card (Ray would hand out card 0)", "3Gi")
    assert refusal(on, Claim(cpus=30_000)) == ("3 free CPUs", "2")
    assert refusal(on, Claim(gpus=10_000)) is None
