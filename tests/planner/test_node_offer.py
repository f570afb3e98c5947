"""What a node offers, computed from the inventory."""

from __future__ import annotations

from typing import Any

import pytest
from short_forms import short_node, short_replica

from fleetctl.documents.fleet import NodePolicy, Resident
from fleetctl.planner.placement.ledger.cards import Offer
from fleetctl.planner.placement.ledger.node_offer import offer_of
from fleetctl.planner.placement.policies import EffectivePolicy, effective_policy

GIB = 1 << 30


def offered(node: dict[str, Any], *replicas: dict[str, Any], policy: EffectivePolicy | None = None) -> Offer:
    members = [member for replica in replicas
               for member in short_replica({"model": "m", "node": "a", **replica}).members]
    return offer_of(short_node({"name": "a", **node}), members, policy or EffectivePolicy())


def shares(offer: Offer) -> list[int]:
    return [card.free_share for card in offer.cards]


def test_a_node_without_card_stats_has_cards_of_unknown_memory() -> None:
    offer = offered({"gpus": 3})
    assert [(card.index, card.free_share, card.free_vram) for card in offer.cards] == [
        (0, 10_000, None), (1, 10_000, None), (2, 10_000, None)]
    assert offer.empty


def test_grants_with_a_card_index_are_subtracted_from_those_cards() -> None:
    offer = offered({"gpus": 4, "vram": "24Gi"}, {"gpus": 2, "cards": [1, 3]}, {"gpus": 0.25, "cards": [2]})
    assert shares(offer) == [10_000, 0, 7500, 0]
    assert offer.free_gpus == 17_500
    assert not offer.empty


def test_a_card_uuid_wins_over_the_index_that_the_member_reports() -> None:
    """In a container the only card may have index 0, whatever its index on the node."""
    assert shares(offered({"gpus": 2, "vram": "24Gi"}, {"gpus": 1, "cards": [0], "uuids": ["GPU-a-1"]})) == [10_000, 0]


def test_a_grant_without_index_is_assigned_to_the_card_that_ray_would_choose() -> None:
    assert shares(offered({"gpus": 3}, {"gpus": 0.5, "cards": [2]}, {"gpus": 0.25})) == [10_000, 10_000, 2500]
    assert shares(offered({"gpus": 3}, {"gpus": 2})) == [0, 0, 10_000]


def test_usage_that_no_replica_explains_is_assigned_to_cards_too() -> None:
    assert shares(offered({"gpus": 3, "used": {"GPU": 1.5}})) == [0, 5000, 10_000]


def test_a_grant_of_an_unknown_holder_is_assigned_to_a_card_with_memory_in_use() -> None:
    offer = offered({"gpus": 3, "vram": "24Gi", "measured": {2: "20Gi"}, "used": {"GPU": 1}})
    assert shares(offer) == [10_000, 10_000, 0]
    assert not any(card.dirty for card in offer.cards)


def test_the_reported_share_of_a_card_is_trusted_and_not_counted_twice() -> None:
    node = {"gpus": 2, "vram": "24Gi", "share": {0: 0.5, 1: 0.0}, "used": {"GPU": 0.5}}
    assert shares(offered(node)) == [5000, 10_000]
    assert shares(offered(node, {"gpus": 0.5, "vram": "4Gi"})) == [5000, 10_000]
    assert shares(offered(node, {"gpus": 0.5, "cards": [0]})) == [5000, 10_000]


def test_a_share_that_fits_on_no_single_card_is_still_subtracted() -> None:
    offer = offered({"gpus": 2}, {"gpus": 0.5, "cards": [0]}, {"gpus": 0.5, "cards": [1]}, {"gpus": 0.8})
    assert sum(shares(offer)) == 2000
    assert offer.free_gpus == 2000


def test_usage_above_the_total_leaves_nothing_free() -> None:
    offer = offered({"gpus": 1, "cpus": 2, "memory": "1Gi", "used": {"GPU": 3, "CPU": 5, "memory": "9Gi"}})
    assert (shares(offer), offer.free_gpus, offer.free_cpus, offer.free_memory) == ([0], 0, 0, 0)


def test_free_memory_is_total_less_the_larger_of_granted_and_measured_less_the_reserve() -> None:
    node = {"gpus": 2, "vram": "24Gi", "measured": {0: "500Mi", 1: "10Gi"}}
    member = {"gpus": 0.1, "vram": "9500Mi"}
    offer = offered(node, {**member, "cards": [0]}, {**member, "cards": [1]}, policy=EffectivePolicy(reserve_vram=GIB))
    assert [card.free_vram for card in offer.cards] == [24 * GIB - 9500 * 1024**2 - GIB, 24 * GIB - 10 * GIB - GIB]


def test_a_grant_without_a_memory_claim_counts_its_share_of_the_memory() -> None:
    offer = offered({"gpus": 1, "vram": "24Gi", "measured": {0: "12Gi"}}, {"gpus": 0.5, "cards": [0]})
    assert (offer.cards[0].free_vram, offer.cards[0].dirty) == (12 * GIB, False)


@pytest.mark.parametrize(("memory", "measured", "dirty"), [
    ("24Gi", "1Gi", False), ("24Gi", "1025Mi", True), ("80Gi", "1600Mi", False), ("80Gi", "1640Mi", True),
])
def test_dirty_is_more_than_the_larger_of_1gi_and_2_percent(memory: str, measured: str, dirty: bool) -> None:
    assert offered({"gpus": 1, "vram": memory, "measured": {0: measured}}).cards[0].dirty is dirty


@pytest.mark.parametrize(("measured", "free", "foreign"), [
    ("0", 22, 0), ("2Gi", 22, 0), ("3Gi", 21, 0), ("5Gi", 19, 3),
])
def test_the_memory_of_residents_is_kept_for_them_and_is_not_foreign(measured: str, free: int, foreign: int) -> None:
    residents = [Resident(memory="1Gi"), Resident(memory="1Gi", process="Xorg")]
    policy = effective_policy([NodePolicy(residents=residents)], {})
    [card] = offered({"gpus": 1, "vram": "24Gi", "measured": {0: measured}}, policy=policy).cards
    assert (card.free_vram, card.foreign) == (free * GIB, foreign * GIB)


def test_residents_come_beside_what_replicas_have_been_granted() -> None:
    """The engine has not loaded yet, and the residents use part of what is theirs."""
    policy = effective_policy([NodePolicy(residents=[Resident(memory="2Gi")])], {})
    [card] = offered({"gpus": 1, "vram": "24Gi", "measured": {0: "2Gi"}}, {"gpus": 0.25, "vram": "6Gi", "cards": [0]},
                     policy=policy).cards
    assert (card.free_vram, card.foreign) == (16 * GIB, 0)


def test_the_policy_sets_card_memory_only_if_the_cluster_reports_none() -> None:
    policy = EffectivePolicy(gpu_memory=16 * GIB)
    assert offered({"gpus": 1}, policy=policy).cards[0].memory == 16 * GIB
    assert offered({"gpus": 1, "vram": "24Gi"}, policy=policy).cards[0].memory == 24 * GIB


def test_a_node_with_a_wrong_number_of_cards_in_the_ten_thousands_is_computed_quickly() -> None:
    """A document in the wrong unit is invalid, but must not block the planner indefinitely."""
    node = short_node({"name": "a", "gpus": 2})
    node = node.model_copy(update={"resources": node.resources.model_copy(update={
        "total": node.resources.total.model_copy(update={"gpu": 40_000.0}),
        "used": node.resources.total.model_copy(update={"gpu": 39_999.5}),
    })})
    offer = offer_of(node, [], EffectivePolicy())
    assert sum(shares(offer)) == offer.free_gpus == 5000
