"""The filter: typing, choosing with the keyboard, the legend, what stays hidden, and the address that keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import OpenPage
from tests.browser.reading import shown, shown_models, shown_nodes

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIELD = "#filter"


def test_typing_part_of_a_model_shows_its_rows_and_its_nodes(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.fill(FIELD, "LLAMA")
    assert shown_models(page) == ["meta-llama/Llama-3.1-70B"]
    assert shown_nodes(page) == ["h100-5"]
    assert page.locator("#matches").inner_text() == "1 of 7 models, 1 of 10 nodes"


def test_typing_part_of_a_node_shows_it_and_the_models_on_it(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.fill(FIELD, "l4-1")
    assert shown_nodes(page) == ["l4-1"]
    assert {"BAAI/bge-m3", "openai-community/gpt2", "router"} <= set(shown_models(page))
    assert "google/gemma-3-27b-it" not in shown_models(page)


def test_what_matches_nothing_shows_nothing_and_says_so(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.fill(FIELD, "no such thing")
    assert shown_models(page) == []
    assert shown_nodes(page) == []
    assert page.locator("#matches").inner_text() == "0 of 7 models, 0 of 10 nodes"


def test_slash_arrows_enter_and_escape_are_all_it_takes(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    everything = shown_nodes(page)
    page.keyboard.press("/")
    page.keyboard.type("qwen")
    assert shown(page, "#found li .key") == ["Qwen/Qwen3-Coder-480B", "Qwen/Qwen3-8B"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    chosen = page.locator("#found [aria-selected=true]")
    assert chosen.get_attribute("id") == page.locator(FIELD).get_attribute("aria-activedescendant")
    page.keyboard.press("Enter")
    assert page.locator(FIELD).input_value() == "Qwen/Qwen3-8B"
    assert page.locator("#found").is_hidden()
    assert shown_nodes(page) == ["a100-old"]
    page.keyboard.press("Escape")
    assert page.locator(FIELD).input_value() == ""
    assert shown_nodes(page) == everything


PLACE = """() => { const box = [...document.querySelectorAll('tr[data-about], .node')]
    .filter((row) => row.getClientRects().length).map((row) => row.getBoundingClientRect());
    const bar = document.querySelector('#bar').getBoundingClientRect();
    return box.some(({ top }) => top >= bar.bottom - 1 && top < innerHeight); }"""


@pytest.mark.parametrize("width", [375, 1280])
def test_after_typing_a_hit_is_in_the_window(open_page: OpenPage, small_html: str, width: int) -> None:
    page = open_page(small_html, width=width, height=360)
    for where in ("() => document.querySelector('#map').scrollIntoView()", "() => scrollTo(0, 1e6)"):
        page.fill(FIELD, "")
        page.evaluate(where)
        page.locator(FIELD).press_sequentially("llama")
        assert page.evaluate(PLACE)
        field, told = page.locator(".box").bounding_box(), page.locator("#matches").bounding_box()
        assert field
        assert told
        assert field["y"] - 2 <= told["y"] <= told["y"] + told["height"] <= field["y"] + field["height"] + 2


def test_typing_does_not_move_the_page_while_a_hit_is_in_the_window(open_page: OpenPage, small_html: str) -> None:
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


def test_a_chosen_model_is_that_model_alone(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.fill(FIELD, "router")
    page.locator("#found li").first.click()
    assert shown_models(page) == ["router"]
    assert shown(page, "#place td.name") == ["router/0", "router/1"]


def test_a_chosen_node_is_that_node_alone(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.fill(FIELD, "l4-1")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert shown_nodes(page) == ["l4-1"]
    assert "router/0" in shown(page, "#place td.name")
    assert "Qwen/Qwen3-Coder-480B/1" not in shown(page, "#place td.name")


def test_a_fold_opens_for_what_is_asked_for_and_closes_again(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    before = shown_models(page)
    assert "Qwen/Qwen3-8B" not in before
    page.fill(FIELD, "Qwen3-8B")
    assert shown_models(page) == ["Qwen/Qwen3-8B"]
    page.fill(FIELD, "")
    assert shown_models(page) == before


def test_a_model_of_the_legend_is_a_filter_and_a_second_click_takes_it_back(
    open_page: OpenPage, small_html: str
) -> None:
    page = open_page(small_html)
    everything = shown_nodes(page)
    entry = page.locator(".legend").get_by_text("google/gemma-3-27b-it")
    entry.click()
    assert shown_nodes(page) == ["a100-old", "h100-5"]
    assert entry.get_attribute("aria-current") == "true"
    assert page.locator(FIELD).input_value() == "google/gemma-3-27b-it"
    entry.click()
    assert shown_nodes(page) == everything
    assert entry.get_attribute("aria-current") is None


def colours(page: Page, node: str) -> dict[str, str]:
    """What stands on the cells of a node, and the colour below it."""
    found: dict[str, str] = page.evaluate(
        """node => Object.fromEntries([...document.querySelectorAll(`[data-node="${node}"] .cell`)].map(
             cell => [cell.textContent, getComputedStyle(cell).backgroundColor]))""", node)
    return found


def test_cards_of_other_models_lose_their_colour_but_not_their_letter(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    before = colours(page, "h100-5")
    assert before["C"] != before["·"]
    page.locator(".legend").get_by_text("google/gemma-3-27b-it").click()
    after = colours(page, "h100-5")
    assert after["B"] == before["B"]
    assert after["C"] == after["·"]


def test_cards_on_a_node_that_was_asked_for_keep_their_colour(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    before = colours(page, "a100-old")
    page.fill(FIELD, "a100-old")
    assert colours(page, "a100-old") == before


def test_parts_without_anything_that_was_asked_for_are_hidden(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.locator(".legend").get_by_text("google/gemma-3-27b-it").click()
    assert shown(page, "h2") == [
        "What changed in the files", "Models", "Placement map", "Drift: reported, never acted on",
        "Held: more replicas run than wanted; all are kept", "Made from"]
    assert page.get_by_text("4 nodes with new replicas").is_hidden()


def test_only_what_changes_leaves_out_the_rest(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.get_by_label("only what changes").check()
    assert shown_nodes(page) == ["h100-3", "h100-4", "l4-1", "l4-2"]
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
    assert shown_models(again) == ["google/gemma-3-27b-it"]
    again.keyboard.press("Escape")
    assert again.evaluate("() => location.hash") == "#only=1"


def test_an_address_that_names_nothing_there_is_or_is_broken_does_no_harm(
    open_page: OpenPage, small_html: str
) -> None:
    assert shown_models(open_page(small_html, fragment="#model=gone")) == []
    everything = shown_models(open_page(small_html))
    assert shown_models(open_page(small_html, fragment="#model=%E0%A4%A")) == everything
    assert shown_models(open_page(small_html, fragment="#=&&=#")) == everything


def test_a_link_into_the_page_still_works(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html, height=500)
    page.locator("nav a[href='#map']").click()
    top = page.evaluate("() => document.getElementById('map').getBoundingClientRect().top")
    bar = page.evaluate("() => document.getElementById('bar').getBoundingClientRect().bottom")
    assert bar <= top < 500
