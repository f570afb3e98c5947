"""A copied ledger, for example with one node dead, is independent: trials on it do not change the original."""

from __future__ import annotations

from short_forms import short_fleet, short_inventory

from fleetctl.planner.placement.claims import ANY_NODE, Claim
from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.ledger.ledger import Ledger
from fleetctl.planner.questions.scenario import Scenario

WHOLE = Claim(gpus=10_000)


def ledger() -> Ledger:
    inventory = short_inventory({"nodes": [{"name": name, "gpus": 1, "labels": {"zone": zone}}
                                           for name, zone in zip("abc", "xyx", strict=True)],
                                 "replicas": [{"model": "m", "id": 0, "nodes": ["a", "b"], "gpus": 1, "slot": 3}]})
    fleet = short_fleet({"models": [{"key": "m", "replicas": 1, "gpus": 1, "spread": "zone"}]})
    return Scenario(fleet, inventory).ledger()


def test_a_copy_closes_the_dead_node_and_gives_others_the_given_offers() -> None:
    first = ledger()
    supposed = first.copied(dead=0, offers={1: first.offer(2)}, ended=[("m", (1,))])
    assert [supposed.nodes[place].open for place in range(3)] == [False, True, True]
    assert supposed.selected(ANY_NODE) == (1, 2)
    assert supposed.take(1, WHOLE) is not None
    assert (supposed.slots(1, "m"), supposed.slots(0, "m")) == (0b0000, 0b1000)


def test_changing_a_copy_leaves_the_original_unchanged() -> None:
    first = ledger()
    before: list[Offer] = [first.offer(place) for place in range(3)]
    supposed = first.copied(dead=0, offers={1: first.offer(2)}, ended=[("m", (0, 1))])
    supposed.take(2, WHOLE)
    assert (dict(supposed.crowd("m")), dict(first.crowd("m"))) == ({}, {"x": 1, "y": 1})
    supposed.take_slots("m", (2,))
    assert [first.offer(place) for place in range(3)] == before
    assert (first.slots(1, "m"), first.slots(2, "m")) == (0b1000, 0b0000)
    assert first.selected(ANY_NODE) == (0, 1, 2)
    assert first.changes == []
    assert (dict(supposed.crowd("m")), dict(first.crowd("m"))) == ({"x": 1}, {"x": 1, "y": 1})
