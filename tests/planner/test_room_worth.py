"""The worth of room: it follows the ledger, never hides a fit, and keeps room for expected demand."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.bid_prices import LinearProgram, balanced_prices, bid_prices
from fleetctl.planner.placement.claims import ANY_NODE, Claim, GroupShape, MemberShape, ReplicaShape, Selector
from fleetctl.planner.placement.demand import Expected, expected_kinds
from fleetctl.planner.placement.ledger.card_value import MICRO
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.policies import NO_CAP, EffectivePolicy, SlotCap
from fleetctl.planner.placement.room_worth import RoomWorth, node_worth

GIB = 1 << 30
ROOM = np.array([[800.0, 0.0, 100.0]])
"""800 CPUs and 100 cards."""
POLICY = EffectivePolicy(SlotCap(NO_CAP, "test"))


def offer(cards: int, cpus: int, *, memory: int = 512 * GIB) -> Offer:
    return Offer(tuple(OfferedCard(index) for index in range(cards)), cards * SHARE, cpus * SHARE, memory)


def ledger(*offers: Offer, labels: Sequence[dict[str, str]] = ()) -> Ledger:
    nodes = [LedgerNode(f"n{place}", f"n{place}", "ALIVE", labels[place] if labels else {}, POLICY)
             for place in range(len(offers))]
    return Ledger.opened(nodes, list(offers))


def shape(claim: Claim, selector: Selector = ANY_NODE, count: int = 1) -> ReplicaShape:
    return ReplicaShape("m", (GroupShape("main", 1, (MemberShape("Worker", count, claim, selector),)),))


def expecting(book: Ledger, *members: tuple[Claim, Selector, int]) -> Placer:
    return Placer(book, RoomWorth(book, [Expected(shape(*kind), count, count) for *kind, count in members]))


def best(placer: Placer, claim: Claim, selector: Selector = ANY_NODE) -> int | None:
    return placer.candidates((claim, selector)).best(None, lambda _: 0)


def gpus(share: float, cpus: int = 0) -> Claim:
    return Claim(gpus=round(share * SHARE), cpus=cpus * SHARE)


shares = st.sampled_from([0, 1000, 2500, 3333, 5000, 9000, SHARE])
vrams = st.sampled_from([None, 0, 4, 8, 24])
cards = st.builds(
    lambda share, vram, size, dirty: (share, None if vram is None else min(vram, size) * GIB,
                                      None if vram is None else size * GIB, GIB * dirty),
    shares, vrams, st.sampled_from([8, 24]), st.booleans(),
)
offers = st.builds(
    lambda parts, short, cpus: Offer(
        tuple(OfferedCard(index, *part) for index, part in enumerate(parts)),
        max(0, sum(part[0] for part in parts) - short), cpus * SHARE, 64 * GIB),
    st.lists(cards, max_size=4), st.sampled_from([0, 0, 5000]), st.integers(0, 8),
)
claims = st.builds(
    lambda gpu, vram, cpus: Claim(gpu, vram * GIB, cpus * SHARE, GIB),
    st.sampled_from([0, 1000, 3333, 5000, SHARE, 2 * SHARE]), st.sampled_from([0, 0, 4, 8, 20]), st.integers(0, 4),
)


@settings(max_examples=cases(25), deadline=None)
@given(st.lists(offers, min_size=1, max_size=5), st.lists(claims, min_size=1, max_size=12), st.data())
def test_the_placer_finds_a_node_exactly_if_one_holds_the_member(
    some: list[Offer], drawn: list[Claim], data: st.DataObject
) -> None:
    book = ledger(*some)
    placer = expecting(book, *[(claim, ANY_NODE, 1) for claim in data.draw(st.lists(claims, max_size=4))])
    for claim in drawn:
        mark, candidates = book.mark(), placer.candidates((claim, ANY_NODE))
        holding = [place for place in range(len(some)) if book.fit(book.numbers[place], claim) is not None]
        assert sorted(node for _, node in candidates.in_order()) == holding
        node = candidates.best(None, lambda _: 0)
        assert (node in holding) if holding else node is None
        if node is not None:
            book.take(node, claim)
            if data.draw(st.booleans()):
                book.undo(mark)


@settings(max_examples=cases(15), deadline=None)
@given(st.lists(claims, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_neither_the_order_of_expected_members_nor_undone_placements_change_the_choice(
    drawn: list[Claim], random: Random
) -> None:
    wanted = [(claim, ANY_NODE, place + 1) for place, claim in enumerate(drawn)]
    book = ledger(offer(4, 16), offer(2, 64), offer(4, 16))
    placer = expecting(book, *wanted)
    before = [best(placer, claim) for claim in drawn]
    mark = book.mark()
    for claim in drawn:
        node = best(placer, claim)
        if node is not None:
            book.take(node, claim)
    book.undo(mark)
    assert [best(placer, claim) for claim in drawn] == before
    random.shuffle(wanted)
    assert [best(expecting(book, *wanted), claim) for claim in drawn] == before


def test_a_share_goes_to_a_card_whose_rest_fits_no_expected_member() -> None:
    book = ledger(offer(1, 32), offer(1, 32))
    book.take(1, gpus(0.6))
    assert best(expecting(book, (gpus(0.6), ANY_NODE, 1), (gpus(0.3), ANY_NODE, 1)), gpus(0.3)) == 1


def test_cpus_are_taken_on_nodes_whose_cards_do_not_need_them() -> None:
    placer = expecting(ledger(offer(8, 96), offer(2, 104)), (gpus(1, cpus=12), ANY_NODE, 10),
                       (gpus(0, cpus=12), ANY_NODE, 6))
    assert best(placer, gpus(0, cpus=12)) == 1


def test_room_that_only_some_models_can_use_is_kept_for_them() -> None:
    labels = [{"model": "a"}, {"model": "b"}]
    only_a = Selector((("model", "a"),))
    placer = expecting(ledger(offer(4, 64), offer(4, 64), labels=labels), (gpus(1), only_a, 4), (gpus(1), ANY_NODE, 4))
    assert best(placer, gpus(1)) == 1
    assert best(placer, gpus(1), only_a) == 0


def test_among_equal_nodes_the_fuller_then_the_least_spread_wins() -> None:
    book = ledger(offer(4, 64), offer(4, 64), offer(4, 64))
    placer = expecting(book, (gpus(1), ANY_NODE, 12))
    candidates, spread = placer.candidates((gpus(1), ANY_NODE)), {0: 5, 1: 5, 2: 3}.__getitem__
    assert candidates.best(None, spread) == 2
    book.take(1, gpus(1))
    assert candidates.best(None, lambda _: 0) == 1
    assert candidates.best({0, 2}.__contains__, spread) == 2


def test_a_node_with_a_certain_card_comes_first() -> None:
    clean = offer(2, 8)
    dirty = clean._replace(cards=(clean.cards[0]._replace(foreign=GIB), *clean.cards[1:]))
    assert best(expecting(ledger(dirty, clean), (gpus(1), ANY_NODE, 3)), gpus(1)) == 1


def test_missing_replicas_count_and_the_remaining_room_goes_to_more_of_the_same_kind() -> None:
    one, two = shape(gpus(1)), shape(gpus(2), count=2)
    assert expected_kinds([Expected(one, 3, 5), Expected(two, 0, 1)], 12 * SHARE) == [
        ((gpus(1), ANY_NODE), 8.0), ((gpus(2), ANY_NODE), 2.0)]
    assert expected_kinds([Expected(one, 3, 5)], 2 * SHARE) == [((gpus(1), ANY_NODE), 3.0)]
    assert expected_kinds([], 2 * SHARE) == []


def test_the_cost_of_a_packing_is_computed_from_its_nodes() -> None:
    book = ledger(offer(2, 8), offer(2, 8))
    worth = RoomWorth(book, [Expected(shape(gpus(2)), 2, 2)])
    before = book.numbers[0]
    book.take(0, gpus(1))
    once = worth.harm(before, book.numbers[0], worth.area_of[0])
    book.take(0, gpus(1))
    assert once > 0
    assert worth.harm(before, book.numbers[0], worth.area_of[0]) < 2 * once, "the second card alone had no use left"


def test_prices_charge_a_member_for_what_is_scarce() -> None:
    """Two members of one card each; CPUs are scarce for the large one, so the small one is better."""
    shares = np.array([[SHARE, SHARE]])
    heavy, light = bid_prices([gpus(1, cpus=12), gpus(1, cpus=4)], np.array([100.0, 100.0]), ROOM, shares)
    assert 0 < light < heavy <= MICRO


def test_prices_show_that_shares_do_not_add_up_over_cards() -> None:
    """Cards full of 0.6 carry one each: a 0.4 fits beside it and costs nearly nothing, a second 0.6 a whole card."""
    shares = np.array([[6000, 4000]])
    large, small = bid_prices([gpus(0.6), gpus(0.4)], np.array([200.0, 50.0]), ROOM, shares)
    assert large > 5 * MICRO // 10
    assert small < MICRO // 10


def test_a_target_that_fits_nowhere_prices_nothing() -> None:
    assert bid_prices([gpus(1)], np.array([3.0]), np.zeros((0, 3)), np.zeros((0, 1), np.int64)).tolist() == [0]
    assert best(expecting(ledger(offer(0, 8)), (gpus(4), ANY_NODE, 2)), gpus(0, cpus=1)) == 0


@pytest.mark.parametrize(("gap", "off"), [(0.05, 0.06), (0.001, 0.0012)])
def test_the_central_path_ends_within_its_gap_of_the_optimum(gap: float, off: float) -> None:
    """max 3x + 2y, x + y <= 4, x + 3y <= 6, x <= 3: 11 at (3, 1)."""
    program = LinearProgram(np.array([0, 1, 2, 0, 1]), np.array([0, 0, 0, 1, 1]), np.array([1.0, 1.0, 1.0, 1.0, 3.0]),
                          np.array([4.0, 6.0, 3.0]), np.array([3.0, 2.0]))
    price = balanced_prices(program, np.array([1.0, 0.5]), np.array([2.0, 1.0, 2.0]), gap)
    assert 11 < price @ program.limit < 11 * (1 + off)
    assert (program.cost(price) > program.gain).all()


def test_the_worth_of_a_node_is_its_best_filling_within_its_cpus() -> None:
    """Members of 0.5 card, 4 CPUs, worth half a card, on nodes of two cards."""
    tables = node_worth([gpus(0.5, cpus=4)], np.array([MICRO // 2]), [np.array([SHARE // 2])], 2, MICRO // 8, 0)
    whole, part = [SHARE, SHARE], [SHARE, SHARE // 2]
    nothing, shares, cpus = np.zeros(4, np.int64), np.array([whole, part, whole, whole]), np.array([64, 64, 8, 3])
    assert tables.of(nothing, shares, cpus * SHARE, nothing).tolist() == [2 * MICRO, 3 * MICRO // 2, MICRO, 0]


@pytest.mark.parametrize("members", [[], [(gpus(1, cpus=2), ANY_NODE, 3)]])
def test_without_nodes_no_replica_is_placed(members: list[tuple[Claim, Selector, int]]) -> None:
    assert best(expecting(ledger(), *members), gpus(1)) is None
