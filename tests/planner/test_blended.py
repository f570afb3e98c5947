"""The even mixture of all models: whole replicas, every rule kept, and room left where the others need it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import Claim, GroupShape, MemberShape, ReplicaShape
from fleetctl.planner.placement.demand import Demand
from fleetctl.planner.placement.greedy.blended import pack_blended, target_of
from fleetctl.planner.placement.ledger.cards import Card, Offer
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.policies import NO_CAP, EffectivePolicy, SlotCap

GIB = 1 << 30


def ledger(*shapes: tuple[int, int], cap: int = NO_CAP) -> Ledger:
    """A node per (cards, CPUs)."""
    policy = EffectivePolicy(SlotCap(cap, "test"))
    nodes = [LedgerNode(f"n{place}", f"n{place}", "ALIVE", {}, policy) for place in range(len(shapes))]
    return Ledger.opened(nodes, [
        Offer(tuple(Card(index) for index in range(cards)), cards * SHARE, cpus * SHARE, 512 * GIB)
        for cards, cpus in shapes
    ], {})


def demand(place: int, missing: int, *, share: float = 0, cpus: int = 0, workers: int = 1, live: int = 0) -> Demand:
    member = MemberShape("Worker", workers, Claim(round(share * SHARE), 0, cpus * SHARE), ())
    return Demand(ReplicaShape(f"m{place}", (GroupShape("main", 1, (member,)),)), missing, live, 100, place)


def placed(demands: Sequence[Demand], book: Ledger) -> dict[int, int]:
    return dict(Counter(one.demand.place for one in pack_blended(demands, book)))


def test_cpu_for_the_cards_is_left_on_their_nodes_whatever_the_order() -> None:
    demands = [demand(0, 4, share=1, cpus=10), demand(1, 4, share=0.5, cpus=2), demand(2, 3, cpus=20)]
    for order in (demands, demands[::-1]):
        assert placed(order, ledger((4, 48), (2, 96))) == {0: 4, 1: 4, 2: 3}


def test_each_model_gets_its_first_replica_before_any_gets_a_second() -> None:
    demands = [demand(0, 9, share=1), demand(1, 1, share=1), demand(2, 3, share=1, live=1)]
    assert placed(demands, ledger((2, 8))) == {0: 1, 1: 1}


def test_members_of_several_cards_come_before_single_cards_break_the_nodes() -> None:
    demands = [demand(0, 8, share=1, live=1), demand(1, 2, share=4, live=1)]
    assert placed(demands, ledger((4, 8), (4, 8), (8, 8))) == {0: 8, 1: 2}


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    book = ledger((1, 8), (1, 8))
    result = pack_blended([demand(0, 1, share=1, workers=3), demand(1, 1, share=1, workers=2)], book)
    assert [(one.demand.place, sorted(stand.node for stand in one.stands)) for one in result] == [(1, [0, 1])]


def test_the_slots_of_a_node_hold() -> None:
    assert placed([demand(0, 5, share=0.1)], ledger((1, 8), (1, 8), cap=1)) == {0: 2}


def test_the_target_counts_members_of_what_is_missing() -> None:
    (kind,) = target_of([demand(0, 3, share=1, workers=2)])
    assert kind == (Claim(SHARE), (), 6.0)
