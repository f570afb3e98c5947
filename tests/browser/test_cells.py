"""A cell of the map shows the holder of the card, outlines its replica, and is reachable without a mouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.conftest import OpenPage
from tests.browser.reading import visible_nodes

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

INSPECTOR = "#inspector"
OUTLINED = """style => [...document.querySelectorAll('.node .cell')].filter(cell =>
    getComputedStyle(cell).outlineStyle === style && cell !== document.activeElement)
  .map(cell => cell.closest('.node').dataset.node)"""


def cell(page: Page, node: str, place: int, side: str = "both") -> Locator:
    return page.locator(f'[data-node="{node}"] [data-side={side}] .cell').nth(place)


def test_hovering_over_a_cell_shows_its_holder(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    assert page.locator(INSPECTOR).is_hidden()
    cell(page, "h100-5", 0).hover()
    assert page.locator(INSPECTOR).inner_text() == "h100-5: card 0, 80Gi; meta-llama/Llama-3.1-70B/0 (live)"
    page.locator("h1").hover()
    assert page.locator(INSPECTOR).is_hidden()


def test_a_shared_card_shows_every_share(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    cell(page, "l4-1", 0, "before").hover()
    text = page.locator(INSPECTOR).inner_text()
    for part in ("openai-community/gpt2/0 0.25 (live)", "openai-community/gpt2/1 0.25", "BAAI/bge-m3/0 0.5"):
        assert part in text


def test_all_cards_of_a_replica_are_outlined_on_every_node(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    cell(page, "h100-3", 0, "after").hover()
    assert sorted(page.evaluate(OUTLINED, "solid")) == ["h100-3"] * 8 + ["h100-4"] * 8
    assert sorted(page.evaluate(OUTLINED, "dashed")) == ["h100-1"] * 8 + ["h100-2"] * 8


def test_one_tab_stop_and_arrows_reach_every_cell(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    assert page.locator(".node [tabindex]").count() == 1
    page.locator(".node [tabindex]").focus()
    assert page.locator(INSPECTOR).inner_text().startswith("h100-3: card 0")
    steps = {"ArrowRight": "h100-3: card 1", "ArrowDown": "h100-4: card 1", "End": "h100-4: card 7",
             "Home": "h100-4: card 0", "ArrowUp": "h100-3: card 0"}
    for key, expected in steps.items():
        page.keyboard.press(key)
        assert page.locator(INSPECTOR).inner_text().startswith(expected)
    assert page.locator(".node [tabindex]").count() == 1


def test_arrows_continue_into_the_unchanged_nodes(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.locator(".node [tabindex]").focus()
    seen = []
    for _ in visible_nodes(page):
        seen.append(page.locator(INSPECTOR).inner_text().partition(":")[0])
        page.keyboard.press("ArrowDown")
    assert seen == visible_nodes(page)


def test_a_focused_cell_has_a_role_and_a_label(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.locator(".node [tabindex]").focus()
    page.keyboard.press("End")
    focused = page.evaluate("() => [document.activeElement.role, document.activeElement.ariaLabel]")
    assert focused == ["button", page.locator(INSPECTOR).inner_text()]
    assert "Qwen/Qwen3-Coder-480B/1 (new)" in focused[1]


def test_enter_on_a_cell_filters_by_its_model(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.locator(".node [tabindex]").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.locator("#filter").input_value() == "Qwen/Qwen3-Coder-480B"
    assert visible_nodes(page) == ["h100-3", "h100-4", "h100-1", "h100-2"]


def test_a_click_on_a_free_card_sets_no_filter(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    cell(page, "h100-3", 0, "before").click()
    assert page.locator("#filter").input_value() == ""


def test_a_replica_without_a_card_is_shown_too(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.locator('[data-node="l4-1"] [data-side=after] .beside .cell').hover()
    assert page.locator(INSPECTOR).inner_text() == "l4-1: without a card: router/0 (new)"


def test_a_tap_shows_the_holder_of_a_card_and_a_tap_elsewhere_hides_it(
    open_page: OpenPage, small_html: str
) -> None:
    page = open_page(small_html, width=360, has_touch=True)
    cell(page, "h100-5", 0).tap()
    assert page.locator(INSPECTOR).inner_text().startswith("h100-5: card 0")
    assert page.locator("#filter").input_value() == ""
    page.locator("h2").first.tap()
    assert page.locator(INSPECTOR).is_hidden()
