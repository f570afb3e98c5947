"""Small models go to small cards: which kind of card is worth less, and that a claim takes it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import SHARE
from fleetctl.planner.placement.claims import ANY_NODE, Claim, Selector
from fleetctl.planner.placement.ledger.card_value import CardValues, tells_cards_apart
from fleetctl.planner.placement.ledger.cards import Offer, OfferedCard
from fleetctl.planner.placement.ledger.ledger import Ledger, LedgerNode
from fleetctl.planner.placement.policies import EffectivePolicy

GIB = 1 << 30
KINDS = {"t4": 15, "l4": 23, "a100": 40, "h100": 80}
"""The Gi of a card of each kind, the least valuable first."""
CLAIMS: Sequence[dict[str, Any]] = (
    {"gpus": 1}, {"gpus": 1, "vram": "14Gi"}, {"gpus": 1, "vram": "20Gi"}, {"gpus": 0.5}, {"gpus": 0.5, "vram": "7Gi"},
    {"vram": "6Gi"}, {"vram": "14Gi"}, {"vram": "20Gi"}, {"gpus": 2}, {"gpus": 2, "vram": "30Gi"})


def ledger(*nodes: tuple[int | None, int | None], unreported: int = 0) -> Ledger:
    """Return a ledger of nodes of two cards, each with the Gi of a card and the price of the node."""
    rows = [LedgerNode(f"n{place}", f"n{place}", "ALIVE", {"kind": f"k{place}"}, EffectivePolicy(price=price))
            for place, (_, price) in enumerate(nodes)]
    offers = [Offer(tuple(OfferedCard(index, memory=size and size * GIB, free_vram=size and size * GIB)
                          for index in range(2)), 2 * SHARE, 8 * SHARE, 64 * GIB, unreported=0 if size else unreported)
              for size, _ in nodes]
    return Ledger.opened(rows, offers)


def ranks(book: Ledger, claim: Claim, selector: Selector = ANY_NODE) -> list[int] | None:
    values = CardValues(book, None, ranked=True)
    ranking = values.ranking((claim, selector))
    return None if ranking is None else [ranking.rank_of[trait] for trait in values.of_node]


WHOLE = Claim(gpus=SHARE)


@pytest.mark.parametrize(("nodes", "claim", "expected"), [
    pytest.param([(80, None), (23, None), (40, None)], WHOLE, [2, 0, 1], id="by memory"),
    pytest.param([(80, 1), (23, 5), (40, 3)], WHOLE, [0, 2, 1], id="by price"),
    pytest.param([(80, 1), (23, None), (40, 3)], WHOLE, [2, 0, 1], id="one price is missing"),
    pytest.param([(80, 1), (23, None), (40, 3)], Claim(SHARE, 30 * GIB), [0, -1, 1], id="not of a card that holds it"),
    pytest.param([(80, None), (81, None)], WHOLE, None, id="the same kind"),
    pytest.param([(80, 7), (23, 7)], WHOLE, None, id="the same price"),
    pytest.param([(80, None), (None, None)], WHOLE, None, id="memory is missing"),
    pytest.param([(80, None), (23, None)], Claim(cpus=SHARE), None, id="no card is claimed"),
    pytest.param([], WHOLE, None, id="no nodes"),
])
def test_kinds_of_cards_are_ranked(
    nodes: list[tuple[int | None, int | None]], claim: Claim, expected: list[int] | None
) -> None:
    assert ranks(ledger(*nodes), claim) == expected


def test_a_node_that_does_not_report_its_cards_is_left_out_of_the_question() -> None:
    assert ranks(ledger((80, None), (23, None), (None, None), unreported=2), WHOLE) == [1, 0, -1]


def test_only_the_kinds_that_the_selector_allows_matter() -> None:
    book = ledger((80, 4), (23, None), (80, 6))
    assert ranks(book, WHOLE, Selector((("kind", "!in(k1)"),))) == [0, -1, 1]
    assert ranks(book, WHOLE, Selector((("kind", "k0"),))) is None


def test_kinds_are_told_apart_by_memory_or_price() -> None:
    assert tells_cards_apart(ledger((80, None), (23, None)))
    assert tells_cards_apart(ledger((80, 1), (80, 2)))
    assert not tells_cards_apart(ledger((80, None), (81, None)))
    assert not tells_cards_apart(ledger((None, None)))


def node(name: str, kind: str, cards: int) -> dict[str, Any]:
    return {"name": name, "gpus": cards, "vram": f"{KINDS[kind]}Gi", "labels": {"kind": kind}}


def kind_at(plan: Plan, kinds: dict[str, str]) -> list[tuple[str, str]]:
    return [(action.model, kinds[action.members[0].node]) for action in plan.actions]


def could_hold(plan: Plan, fleet: dict[str, Any], inventory: dict[str, Any], claim: dict[str, Any], kind: str) -> bool:
    """Return whether one more replica with a claim fits a kind beside all that a plan creates."""
    running = [*inventory.get("replicas", []), *created(plan, fleet)]
    more = {"models": [{"key": "more", "replicas": 1, **claim, "selector": {"kind": kind}}]}
    return bool(plan_for(short_fleet(more), short_inventory({**inventory, "replicas": running})).actions)


def created(plan: Plan, fleet: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a plan creates as running replicas, in short form."""
    claim_of = {model["key"]: {key: model[key] for key in ("vram",) if key in model} for model in fleet["models"]}
    return [{"model": action.model, "id": action.replica_id, "node": action.members[0].node,
             "gpus": action.members[0].gpus / SHARE, **claim_of[action.model]} for action in plan.actions]


@settings(max_examples=cases(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(KINDS)), st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=6),
       st.sampled_from(CLAIMS), st.integers(1, 12))
def test_a_model_alone_takes_no_more_valuable_card_while_a_less_valuable_one_could_hold_it(
    drawn: list[tuple[str, int]], claim: dict[str, Any], replicas: int
) -> None:
    inventory = {"nodes": [node(f"n{place}", *one) for place, one in enumerate(drawn)]}
    kinds = {f"n{place}": kind for place, (kind, _) in enumerate(drawn)}
    fleet = {"models": [{"key": "m", "replicas": replicas, **claim}]}
    plan = plan_for(short_fleet(fleet), short_inventory(inventory))
    used = [kind for _, kind in kind_at(plan, kinds)]
    dearest = max(map(list(KINDS).index, used), default=0)
    for kind in list(KINDS)[:dearest]:
        assert kind not in kinds.values() or not could_hold(plan, fleet, inventory, claim, kind), (kind, used)


@pytest.mark.parametrize("seed", range(6))
def test_a_fleet_that_grows_by_a_merge_a_day_keeps_its_large_cards_for_large_models(seed: int) -> None:
    """The large models come last, and all of them find room."""
    random = Random(seed)
    inventory: dict[str, Any] = {"nodes": [node("h", "h100", 8), *(node(f"l{place}", "l4", 4) for place in range(3))]}
    small = [random.choice([{"gpus": 1}, {"gpus": 1, "vram": "18Gi"}, {"gpus": 0.5, "vram": "9Gi"}, {"vram": "10Gi"}])
             for _ in range(8)]
    models: list[dict[str, Any]] = [{"key": "first", "replicas": 1, "gpus": 2, "vram": "70Gi"}]
    for day, claim in enumerate([{}, *small, *[{"gpus": 2, "vram": "70Gi"}] * 3]):
        if claim:
            models.append({"key": f"m{day}", "replicas": 1, **claim})
        fleet = {"models": models}
        plan = plan_for(short_fleet(fleet), short_inventory(inventory))
        assert not plan.blocked, (day, claim)
        for action in plan.actions:
            large = "70Gi" in str(models[day].get("vram"))
            assert (action.members[0].node == "h") is large, (day, claim)
        inventory["replicas"] = [*inventory.get("replicas", []), *created(plan, fleet)]


@settings(max_examples=cases(40), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(0, 1)), min_size=1, max_size=5),
       st.lists(st.tuples(st.sampled_from(CLAIMS), st.integers(1, 4)), min_size=1, max_size=4))
def test_with_cards_of_one_kind_the_rule_changes_nothing(
    drawn: list[tuple[int, int]], wanted: list[tuple[dict[str, Any], int]]
) -> None:
    inventory = {"nodes": [{**node(f"n{place}", "h100", cards), "used": {"GPU": used}}
                           for place, (cards, used) in enumerate(drawn)]}
    fleet = {"models": [{"key": f"m{place}", "replicas": count, **claim}
                        for place, (claim, count) in enumerate(wanted)]}
    plan = plan_for(short_fleet(fleet), short_inventory(inventory))
    with mock.patch.object(CardValues, "ranking", return_value=None):
        assert plan_for(short_fleet(fleet), short_inventory(inventory)) == plan
