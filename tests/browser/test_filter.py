"""The filter: typing, choosing with the keyboard, the legend, hidden parts, and the address that keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import OpenPage
from tests.browser.reading import visible, visible_models, visible_nodes

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIELD = "#filter"


def test_typing_part_of_a_model_shows_its_rows_and_its_nodes(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.fill(FIELD, "LLAMA")
    assert visible_models(page) == ["meta-llama/Llama-3.1-70B"]
    assert visible_nodes(page) == ["h100-5"]
    assert page.locator("#matches").inner_text() == "1 of 7 models, 1 of 10 nodes"


def test_typing_part_of_a_node_shows_it_and_the_models_on_it(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.fill(FIELD, "l4-1")
    assert visible_nodes(page) == ["l4-1"]
    assert {"BAAI/bge-m3", "openai-community/gpt2", "router"} <= set(visible_models(page))
    assert "google/gemma-3-27b-it" not in visible_models(page)


def test_a_text_without_matches_shows_no_rows_and_the_counts(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.fill(FIELD, "no such thing")
    assert visible_models(page) == []
    assert visible_nodes(page) == []
    assert page.locator("#matches").inner_text() == "0 of 7 models, 0 of 10 nodes"


def test_the_filter_works_with_slash_arrows_enter_and_escape(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    everything = visible_nodes(page)
    page.keyboard.press("/")
    page.keyboard.type("qwen")
    assert visible(page, "#found li .key") == ["Qwen/Qwen3-Coder-480B", "Qwen/Qwen3-8B"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    chosen = page.locator("#found [aria-selected=true]")
    assert chosen.get_attribute("id") == page.locator(FIELD).get_attribute("aria-activedescendant")
    page.keyboard.press("Enter")
    assert page.locator(FIELD).input_value() == "Qwen/Qwen3-8B"
    assert page.locator("#found").is_hidden()
    assert visible_nodes(page) == ["a100-old"]
    page.keyboard.press("Escape")
    assert page.locator(FIELD).input_value() == ""
    assert visible_nodes(page) == everything


PLACE = """() => { const box = [...document.querySelectorAll('tr[data-about], .node')]
    .filter((row) => row.getClientRects().length).map((row) => row.getBoundingClientRect());
    const bar = document.querySelector('#bar').getBoundingClientRect();
    return box.some(({ top }) => top >= bar.bottom - 1 && top < innerHeight); }"""


@pytest.mark.parametrize("width", [375, 1280])
def test_after_typing_a_match_is_in_the_window(open_page: OpenPage, small_html: str, width: int) -> None:
    page = open_page(small_html, width=width, height=360)
    for where in ("() => document.querySelector('#map').scrollIntoView()", "() => scrollTo(0, 1e6)"):
        page.fill(FIELD, "")
        page.evaluate(where)
        page.locator(FIELD).press_sequentially("llama")
        assert page.evaluate(PLACE)
        field, matches = page.locator(".box").bounding_box(), page.locator("#matches").bounding_box()
        assert field
        assert matches
        assert field["y"] - 2 <= matches["y"] <= matches["y"] + matches["height"] <= field["y"] + field["height"] + 2


def test_typing_does_not_scroll_while_a_match_is_in_the_window(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.fill(FIELD, "l")
    assert page.evaluate("scrollY") == 0


@pytest.mark.parametrize("width", [375, 1280])
def test_a_link_leads_to_a_heading_below_the_bar(open_page: OpenPage, small_html: str, width: int) -> None:
    page = open_page(small_html, width=width)
    for typed in ("", "h100"):
        page.fill(FIELD, typed)
        page.locator("nav a[href='#map']").click()
        bar, heading = page.locator("#bar").bounding_box(), page.locator("#map h2").bounding_box()
        assert bar
        assert heading
        assert heading["y"] >= bar["y"] + bar["height"] + 4


def test_choosing_a_model_shows_only_that_model(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.fill(FIELD, "router")
    page.locator("#found li").first.click()
    assert visible_models(page) == ["router"]
    assert visible(page, "#place td.name") == ["router/0", "router/1"]


def test_choosing_a_node_shows_only_that_node(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.fill(FIELD, "l4-1")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert visible_nodes(page) == ["l4-1"]
    assert "router/0" in visible(page, "#place td.name")
    assert "Qwen/Qwen3-Coder-480B/1" not in visible(page, "#place td.name")


def test_a_fold_opens_for_a_match_and_closes_again(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    before = visible_models(page)
    assert "Qwen/Qwen3-8B" not in before
    page.fill(FIELD, "Qwen3-8B")
    assert visible_models(page) == ["Qwen/Qwen3-8B"]
    page.fill(FIELD, "")
    assert visible_models(page) == before


def test_a_model_in_the_legend_sets_the_filter_and_a_second_click_clears_it(
    open_page: OpenPage, small_html: str
) -> None:
    page = open_page(small_html)
    everything = visible_nodes(page)
    entry = page.locator(".legend").get_by_text("google/gemma-3-27b-it")
    entry.click()
    assert visible_nodes(page) == ["a100-old", "h100-5"]
    assert entry.get_attribute("aria-current") == "true"
    assert page.locator(FIELD).input_value() == "google/gemma-3-27b-it"
    entry.click()
    assert visible_nodes(page) == everything
    assert entry.get_attribute("aria-current") is None


def colors(page: Page, node: str) -> dict[str, str]:
    """The texts of the cells of a node, with their background colors."""
    found: dict[str, str] = page.evaluate(
        """node => Object.fromEntries([...document.querySelectorAll(`[data-node="${node}"] .cell`)].map(
             cell => [cell.textContent, getComputedStyle(cell).backgroundColor]))""", node)
    return found


def test_cards_of_other_models_lose_their_color_but_not_their_letter(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    before = colors(page, "h100-5")
    assert before["C"] != before["·"]
    page.locator(".legend").get_by_text("google/gemma-3-27b-it").click()
    after = colors(page, "h100-5")
    assert after["B"] == before["B"]
    assert after["C"] == after["·"]


def test_cards_on_a_matching_node_keep_their_color(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    before = colors(page, "a100-old")
    page.fill(FIELD, "a100-old")
    assert colors(page, "a100-old") == before


def test_parts_without_a_match_are_hidden(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.locator(".legend").get_by_text("google/gemma-3-27b-it").click()
    assert visible(page, "h2") == [
        "Placement map", "What changed in the files", "Models", "Drift: reported, never acted on",
        "Held: more replicas run than wanted; all are kept", "Made from"]
    assert page.get_by_text("4 nodes with new replicas").is_hidden()


def test_only_what_changes_hides_the_rest(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.get_by_label("only what changes").check()
    assert visible_nodes(page) == ["h100-3", "h100-4", "l4-1", "l4-2"]
    assert page.get_by_text("model with nothing to do").is_hidden()
    assert page.locator("#matches").inner_text() == "6 of 7 models, 4 of 10 nodes"


def test_the_address_keeps_the_filter(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.locator(".legend").get_by_text("google/gemma-3-27b-it").click()
    page.get_by_label("only what changes").check()
    fragment = page.evaluate("() => location.hash")
    again = open_page(small_html, fragment=fragment)
    assert again.locator(FIELD).input_value() == "google/gemma-3-27b-it"
    assert again.get_by_label("only what changes").is_checked()
    assert visible_models(again) == ["google/gemma-3-27b-it"]
    again.keyboard.press("Escape")
    assert again.evaluate("() => location.hash") == "#only=1"


def test_an_unknown_or_broken_address_does_no_harm(
    open_page: OpenPage, small_html: str
) -> None:
    assert visible_models(open_page(small_html, fragment="#model=gone")) == []
    everything = visible_models(open_page(small_html))
    assert visible_models(open_page(small_html, fragment="#model=%E0%A4%A")) == everything
    assert visible_models(open_page(small_html, fragment="#=&&=#")) == everything


def test_a_link_into_the_page_still_works(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html, height=500)
    page.locator("nav a[href='#map']").click()
    top = page.evaluate("() => document.getElementById('map').getBoundingClientRect().top")
    bar = page.evaluate("() => document.getElementById('bar').getBoundingClientRect().bottom")
    assert bar <= top < 500
