"""A fleet of 1,000 nodes and 8,000 cards: the page is small, complete and quick to filter."""

from __future__ import annotations

from fleetctl.render.page.plan_page import CHANGED_SHOWN, plan_page
from tests.browser.conftest import OpenPage
from tests.browser.page_worlds import Drawn
from tests.browser.reading import replicas, totals, visible_nodes


def test_the_page_and_its_document_tree_are_small(
    open_page: OpenPage, thousand: Drawn, thousand_html: str
) -> None:
    assert len(thousand.picture.nodes) == 1000
    assert len(thousand_html.encode()) < 2_000_000
    page = open_page(thousand_html)
    assert page.evaluate("() => document.querySelectorAll('*').length") < 20_000


def test_a_cell_is_one_element(open_page: OpenPage, thousand_html: str) -> None:
    page = open_page(thousand_html)
    assert page.locator(".node .cell:not(.free) > *").count() == 0


def test_the_map_is_complete(open_page: OpenPage, thousand: Drawn, thousand_html: str) -> None:
    page = open_page(thousand_html)
    assert totals(page)["create"] == thousand.plan.summary.create == len(replicas(page, "new"))
    assert len(replicas(page, "live")) == thousand.plan.summary.live
    assert page.locator("[data-side=after] > .cell, [data-side=both] > .cell").count() == 8000


def test_a_plan_of_many_nodes_shows_a_few_of_each_new_model_first_and_its_totals_on_the_next_screen(
    open_page: OpenPage, thousand: Drawn, thousand_html: str
) -> None:
    page = open_page(thousand_html)
    assert len(visible_nodes(page)) == CHANGED_SHOWN
    shown = set(page.evaluate("""() => [...document.querySelectorAll('.changed > ul .new')].map(
        cell => cell.dataset.r.replace(/[/]\\d+$/, ''))"""))
    assert shown == {row.key for row in thousand.plan.models if row.create}
    assert page.locator(".changed > ul .node").first.bounding_box()["y"] < 400  # type: ignore[index]
    assert page.locator(".counts").bounding_box()["y"] < 1800  # type: ignore[index]


def test_what_a_fold_hides_is_not_laid_out_and_all_else_is_drawn_without_scrolling(
    open_page: OpenPage, thousand_html: str
) -> None:
    page = open_page(thousand_html)
    count = """() => [...document.querySelectorAll('.node .cell')].filter(
        cell => cell.checkVisibility({contentVisibilityAuto: true})).length"""
    assert page.evaluate(count) == CHANGED_SHOWN * 16
    page.locator("details.same > summary").click()
    unchanged = page.locator(".same .cell").count()
    assert unchanged > 5000
    assert page.evaluate(count) == CHANGED_SHOWN * 16 + unchanged, "a picture of the whole page has all of them"


def test_a_filter_shows_only_matches(open_page: OpenPage, thousand: Drawn, thousand_html: str) -> None:
    page = open_page(thousand_html)
    page.fill("#filter", "org-0/model-07")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    holding = {node.name for node in thousand.picture.nodes for card in node.cards for piece in card.pieces
               if piece.model == "org-0/model-07"}
    assert set(visible_nodes(page)) == holding
    page.keyboard.press("Escape")
    page.fill("#filter", "node-0123")
    assert visible_nodes(page) == ["node-0123"]


def test_a_page_without_a_map_shows_all_400_new_replicas(
    open_page: OpenPage, thousand: Drawn
) -> None:
    page = open_page(plan_page(thousand.plan, None))
    assert len(replicas(page, "new")) == thousand.plan.summary.create
