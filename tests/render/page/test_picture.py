"""The map of a page: `before` is `after` without new replicas, and a plan alone shows only new replicas."""

from __future__ import annotations

from fleetctl.render.page.plan_page import before, is_touched, map_part, planned_alone
from tests.render.map_worlds import card, everything, node, piece
from tests.render.render_plans import create, member, plan


def test_before_has_no_new_pieces_and_their_shares_are_free() -> None:
    after = node("n", card(0, piece("a", 2_500), piece("b", 5_000, "new")), card(1, piece("c", holder="new")))
    first, second = before(after).cards
    assert [one.model for one in first.pieces] == ["a"]
    assert (first.free_share, second.free_share) == (7_500, 10_000)


def test_before_is_the_same_node_if_nothing_is_new() -> None:
    for one in everything().nodes:
        assert (before(one) == one) is not is_touched(one)


def test_a_member_without_a_card_also_touches_its_node() -> None:
    cpu = everything().nodes[-1]
    assert is_touched(cpu)
    assert before(cpu).beside == []


def test_a_plan_alone_draws_whole_cards_and_packs_shares() -> None:
    actions = [create("a", 0, member("n", gpus=20_000)), create("b", 0, member("n", gpus=6_000)),
               create("b", 1, member("n", gpus=6_000)), create("c", 0, member("n", gpus=4_000)),
               create("d", 0, member("n", cpus=10_000), member("m", gpus=10_000, rank=1))]
    picture = planned_alone(plan(actions=actions))
    assert [found.name for found in picture.nodes] == ["m", "n"]
    cards = [[one.replica for one in found.pieces] for found in picture.nodes[1].cards]
    assert cards == [["a/0"], ["a/0"], ["b/0", "c/0"], ["b/1"]]
    assert [one.replica for one in picture.nodes[1].beside] == ["d/0"]
    assert {entry.model: entry.new for entry in picture.legend} == {"a": 1, "b": 2, "c": 1, "d": 1}


def test_new_replicas_are_named_with_their_variants_beside_their_node_and_in_the_legend() -> None:
    actions = [create("org/a", number, member("n", gpus=10_000)).model_copy(update={"variant": variant})
               for number, variant in enumerate(("h100", "h100", "a100"))]
    picture = planned_alone(plan(actions=actions))
    [entry] = picture.legend
    assert [(one.name, one.new) for one in entry.variants] == [("h100", 2), ("a100", 1)]
    shown = str(map_part(picture, whole=False).body)
    assert "+ org/a/0-1 as h100<" in shown
    assert "+ org/a/2 as a100<" in shown
    links = shown.count('data-model="m0">org/a</a> as ')
    assert links == 2, "both variants filter by their model"
    assert "org/a/2 as a100 (new)" in shown
