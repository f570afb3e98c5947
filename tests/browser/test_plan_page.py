"""The page of a plan: its totals, its models, its map, and its inputs."""

from __future__ import annotations

import pytest

from fleetctl.documents.plan import Plan
from fleetctl.render.page.plan_page import plan_page
from tests.browser.conftest import OpenPage
from tests.browser.page_worlds import Drawn
from tests.browser.reading import cells, replicas, totals, visible, visible_models, visible_nodes

SUMMARY = ("wanted", "live", "create", "hold", "blocked", "unmanaged", "drift", "outdated", "lost")


def test_the_totals_match_the_plan(open_page: OpenPage, small: Drawn, small_html: str) -> None:
    read = totals(open_page(small_html))
    assert {name: read[name] for name in SUMMARY} == small.plan.summary.model_dump(include={*SUMMARY})
    assert all(read[name] for name in SUMMARY), "a total of 0 would test nothing"
    assert read["policy"] == len(small.plan.policy)


def test_the_map_shows_every_new_replica_once_and_only_after_the_plan(
    open_page: OpenPage, small: Drawn, small_html: str
) -> None:
    page = open_page(small_html)
    assert replicas(page, "new") == {action.id for action in small.plan.actions}
    assert len(replicas(page, "new")) == small.plan.summary.create
    assert replicas(page, "new", "before") == set()


def test_the_map_shows_running_replicas_on_both_sides(open_page: OpenPage, small: Drawn, small_html: str) -> None:
    page = open_page(small_html)
    for side in ("before", "after"):
        assert len(replicas(page, "live", side)) == small.plan.summary.live
        assert len(replicas(page, "foreign", side)) == small.plan.summary.unmanaged


def test_every_card_of_every_node_has_a_cell(open_page: OpenPage, small: Drawn, small_html: str) -> None:
    page = open_page(small_html)
    for side in ("before", "after"):
        assert {name: len(signs) for name, signs in cells(page, side).items()} == {
            node.name: len(node.cards) for node in small.picture.nodes}


def test_the_cards_used_by_a_plan_are_free_before_it(open_page: OpenPage, small: Drawn, small_html: str) -> None:
    page = open_page(small_html)
    assert cells(page, "before")["h100-3"] == ["·"] * 8
    assert set(cells(page, "after")["h100-3"]) == {"+A"}


def test_the_height_of_a_piece_is_its_share_of_the_card(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    heights = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('[data-node="l4-1"] [data-side=before] i')].map(
             piece => [piece.dataset.r, piece.offsetHeight / piece.parentElement.clientHeight]))""")
    assert heights["openai-community/gpt2/0"] == pytest.approx(0.25, abs=0.03)
    assert heights["BAAI/bge-m3/0"] == pytest.approx(0.5, abs=0.03)


def test_letters_show_what_colors_show(open_page: OpenPage, small_html: str) -> None:
    now = cells(open_page(small_html), "before")
    assert now["a100-gone"] == ["x"] * 8
    assert now["h100-5"][5] == "!"
    assert now["l4-2"][3].startswith("~")
    assert now["l4-1"][0] == "EF"


def test_models_with_something_to_do_come_first_and_the_others_are_folded(
    open_page: OpenPage, small: Drawn, small_html: str
) -> None:
    page = open_page(small_html)
    quiet = [row.key for row in small.plan.models if not (row.create or row.blocked or row.surplus)]
    assert quiet
    assert visible_models(page) == [row.key for row in small.plan.models if row.key not in quiet]
    page.get_by_text(f"{len(quiet)} model with nothing to do").click()
    assert visible_models(page)[-len(quiet):] == quiet


def test_blocked_models_have_their_reasons_and_remedies(open_page: OpenPage, small_html: str) -> None:
    text = open_page(small_html).locator("#blocked").inner_text()
    for part in ("meta-llama/Llama-3.1-70B", "INSUFFICIENT_GPU", "needs 4 free GPUs", "would fit with 1 more node"):
        assert part in text


def test_the_map_is_the_first_part_then_policy_and_effect_of_the_change_then_models(
    open_page: OpenPage, small_html: str
) -> None:
    page = open_page(small_html)
    order = page.evaluate("() => [...document.querySelectorAll('main > [id]')].map(part => part.id)")
    assert order[:2] == ["bar", "map"]
    assert order.index("policy") < order.index("effect") < order.index("model")
    assert "spec.policy.maxNewReplicas" in page.locator("#policy").inner_text()
    assert "meta-llama/Llama-3.1-70B" in page.locator("#effect").inner_text()


def test_the_facts_list_the_inputs_of_the_plan(open_page: OpenPage, small: Drawn, small_html: str) -> None:
    text = open_page(small_html).locator("#facts").inner_text()
    for part in ("1a2b3c4d5e", "more-llama", "uncommitted", small.plan.plan_id, "2026-01-02T00:00:00Z", "test"):
        assert part in text


def test_every_link_of_the_contents_has_a_target(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    links = page.evaluate("() => [...document.querySelectorAll('nav a')].map(link => link.getAttribute('href'))")
    assert len(links) >= 8
    assert [link for link in links if page.locator(link).count() != 1] == []


def test_without_a_map_only_new_replicas_are_drawn_with_a_note(open_page: OpenPage, small: Drawn) -> None:
    page = open_page(plan_page(small.plan, None))
    assert "Made from the plan alone" in page.locator("#map").inner_text()
    assert replicas(page, "new") == {action.id for action in small.plan.actions}
    targets = {member.node for action in small.plan.actions for member in action.members}
    assert set(visible_nodes(page)) == targets
    assert page.locator(".node [data-side=before]").count() == 0
    assert visible(page, ".node .live") == []


def test_a_plan_with_nothing_to_do_says_so(open_page: OpenPage, small: Drawn) -> None:
    page = open_page(plan_page(nothing_to_do(small.plan), None))
    assert page.locator("header .state").inner_text() == "Nothing to do"
    assert page.locator("#map").inner_text().endswith("No node changes.")


def nothing_to_do(plan: Plan) -> Plan:
    summary = plan.summary.model_copy(update={"create": 0, "blocked": 0})
    return plan.model_copy(update={"actions": [], "blocked": [], "models": [], "summary": summary, "exit_code": 0,
                                   "policy": [], "change": None})


def test_nodes_beyond_the_limit_are_counted_and_changed_nodes_stay(
    open_page: OpenPage, small: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.render.page.plan_page.NODES_SHOWN", 5)
    page = open_page(plan_page(small.plan, small.picture))
    assert len(visible_nodes(page)) == 5
    assert replicas(page, "new") == {action.id for action in small.plan.actions}
    assert f"and {len(small.picture.nodes) - 5} more nodes" in page.locator("#map").inner_text()


