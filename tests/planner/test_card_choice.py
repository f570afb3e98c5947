"""Which cards a claim gets: Ray's choice, followed card by card."""

from __future__ import annotations

import pytest

from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard, share_of, take
from fleetctl.planner.placement.tally import OfferTable

GIB = 1 << 30


def offer(*cards: OfferedCard, cpus: int = 0) -> Offer:
    return Offer(cards, sum(card.free_share for card in cards), free_cpus=cpus)


def card(index: int, share: int = 10_000, vram: int | None = 24, *, dirty: bool = False) -> OfferedCard:
    free = None if vram is None else vram * GIB
    return OfferedCard(index, share, free, None if vram is None else 24 * GIB, GIB * dirty)


def picked(on: Offer, claim: Claim) -> tuple[int, ...] | None:
    taken = take(on, claim)
    return None if taken is None else taken.indices


def test_a_share_goes_to_the_card_with_the_least_left_that_holds_it() -> None:
    assert picked(offer(card(0), card(1, 3000), card(2, 5000)), Claim(gpus=2500)) == (1,)
    assert picked(offer(card(0), card(1, 3000), card(2, 5000)), Claim(gpus=4000)) == (2,)


def test_equal_cards_go_by_index() -> None:
    assert picked(offer(card(0), card(1)), Claim(gpus=2500)) == (0,)


def test_free_shares_of_several_cards_never_add_up() -> None:
    assert picked(offer(card(0, 5000), card(1, 5000)), Claim(gpus=8000)) is None


def test_the_memory_must_be_free_on_the_card_that_ray_picks() -> None:
    assert picked(offer(card(0, 3000, vram=1), card(1)), Claim(gpus=2500, vram=10 * GIB)) is None
    assert picked(offer(card(0, 2000, vram=1), card(1)), Claim(gpus=2500, vram=10 * GIB)) == (1,)


def test_foreign_use_is_subtracted_from_what_shares_may_take() -> None:
    """Of card 0, one of 24 GiB is in foreign use, and Ray would pick it."""
    on = offer(card(0, vram=22, dirty=True), card(1))
    assert picked(on, Claim(vram=22 * GIB)) == (0,)
    assert picked(on, Claim(gpus=5000, vram=22 * GIB)) == (0,)
    assert picked(on, Claim(gpus=5000, vram=23 * GIB)) is None
    assert picked(on, Claim(gpus=9500)) == (0,)
    assert picked(on, Claim(gpus=9600)) is None, "without a claim on memory, a share stands for its part of it"
    assert picked(offer(card(0, vram=None, dirty=True), card(1)), Claim(gpus=100)) is None


def test_a_cooling_card_that_ray_would_pick_stops_a_share() -> None:
    assert picked(offer(card(0)._replace(tries=0), card(1)), Claim(gpus=2500)) is None


def test_whole_cards_are_the_clean_ones_with_memory_lowest_index_first() -> None:
    on = offer(card(0, dirty=True), card(1, vram=4), card(2), card(3, 9000), card(4))
    assert picked(on, Claim(gpus=20_000, vram=16 * GIB)) == (2, 4)
    assert picked(on, Claim(gpus=30_000, vram=16 * GIB)) is None


def test_whole_cards_are_at_most_what_ray_has_free() -> None:
    on = offer(card(0), card(1))._replace(free_gpus=10_000)
    assert picked(on, Claim(gpus=10_000)) == (0,)
    assert picked(on, Claim(gpus=20_000)) is None


@pytest.mark.parametrize(("dirty", "risky"), [(True, True), (False, False)])
def test_whole_cards_are_risky_when_ray_might_hand_out_others(dirty: bool, risky: bool) -> None:
    taken = take(offer(card(0, dirty=dirty), card(1)), Claim(gpus=10_000))
    assert taken is not None
    assert taken.risky is risky


def test_a_claim_of_memory_alone_is_a_share_rounded_up() -> None:
    assert share_of(7 * GIB, 24 * GIB) == 2917
    taken = take(offer(card(0)), Claim(vram=7 * GIB))
    assert taken is not None
    assert (taken.gpus, taken.left.cards[0].free_share, taken.left.cards[0].free_vram) == (2917, 7083, 17 * GIB)


def test_a_claim_of_memory_alone_is_a_share_of_its_own_card() -> None:
    mixed = offer(OfferedCard(0, 10_000, 80 * GIB, 80 * GIB), OfferedCard(1, 10_000, 20 * GIB, 20 * GIB))
    taken = take(mixed, Claim(vram=40 * GIB))
    assert taken is not None
    assert (taken.gpus, taken.indices) == (5000, (0,))


def test_a_memory_claim_is_refused_on_a_card_of_unknown_memory() -> None:
    assert picked(offer(card(0, vram=None)), Claim(vram=GIB)) is None
    assert picked(offer(card(0, vram=None)), Claim(gpus=10_000, vram=GIB)) is None
    assert picked(offer(card(0, vram=None)), Claim(gpus=10_000)) == (0,)


def test_a_claim_without_cards_takes_cpu_only() -> None:
    taken = take(offer(card(0), cpus=30_000), Claim(cpus=20_000))
    assert taken is not None
    assert (taken.gpus, taken.left.free_cpus, taken.left.cards, taken.left.empty) == (0, 10_000, (card(0),), False)
    assert take(taken.left, Claim(cpus=20_000)) is None


@pytest.mark.parametrize(("claim", "most"), [
    (Claim(gpus=10_000), 1), (Claim(gpus=20_000), 0), (Claim(gpus=2500), 6), (Claim(gpus=2500, vram=10 * GIB), 2),
    (Claim(vram=12 * GIB), 2), (Claim(cpus=10_000), 3), (Claim(gpus=2500, cpus=20_000), 1),
])
def test_the_counted_number_is_never_below_the_number_that_fits(claim: Claim, most: int) -> None:
    on = offer(card(0), card(1, 5000, vram=6), cpus=30_000)
    assert OfferTable([on]).max_of(claim).tolist() == [most]
    fitted = 0
    while (taken := take(on, claim)) is not None:
        on, fitted = taken.left, fitted + 1
    assert fitted <= most
