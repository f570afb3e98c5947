"""A fleet of 1,000 nodes and 8,000 cards: the page is small, complete and quick to filter."""

from __future__ import annotations

from fleetctl.render.page.plan_page import plan_page
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


def test_rows_outside_the_window_are_not_laid_out(open_page: OpenPage, thousand_html: str) -> None:
    page = open_page(thousand_html)
    laid_out = page.evaluate("""() => [...document.querySelectorAll('.node .cell')].filter(
        cell => cell.checkVisibility({contentVisibilityAuto: true})).length""")
    assert laid_out < 2_000


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
