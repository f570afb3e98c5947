"""Without JavaScript the page is complete except for the controls that need it."""

from __future__ import annotations

from tests.browser.conftest import OpenPage
from tests.browser.page_worlds import Drawn


def test_the_essentials_are_in_the_html(open_page: OpenPage, small: Drawn, small_html: str) -> None:
    page = open_page(small_html, java_script_enabled=False)
    text = page.locator("main").inner_text()
    assert "8 to create, 2 blocked, 1 held, 1 outdated, 0 to remove" in text
    for row in small.plan.models:
        assert row.key in text
    for part in ("needs 4 free GPUs", "Would create", "Placement map", "This change alone", "Made from"):
        assert part in text
    assert page.locator('[data-node="h100-3"] [data-side=after] .cell').all_inner_texts() == ["+A"] * 8


def test_controls_that_would_do_nothing_are_not_shown(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html, java_script_enabled=False)
    assert page.locator("#bar").is_hidden()
    assert page.locator("[tabindex]").count() == 0


def test_folds_open_natively_and_cells_have_titles(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html, java_script_enabled=False)
    row = page.locator(".of-model td.name", has_text="Qwen/Qwen3-8B")
    assert row.is_hidden()
    page.get_by_text("1 model with nothing to do").click()
    assert row.is_visible()
    title = page.locator('[data-node="h100-5"] .cell').first.get_attribute("title")
    assert title == "card 0, 80Gi; meta-llama/Llama-3.1-70B/0 (live)"
