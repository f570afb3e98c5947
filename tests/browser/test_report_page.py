"""The page of any report, here a diff: the same layout and filter, without a map."""

from __future__ import annotations

import pytest

from fleetctl.render.page.report_page import report_page
from fleetctl.render.report.model import Column, Report, Table, Total
from tests.browser.conftest import OpenPage
from tests.browser.reading import totals, visible

COLUMNS = (Column("effect", "effect"), Column("model", "model", name=True), Column("path", "what", name=True),
           Column("message", "what it does"))


def row(effect: str, *models: str) -> tuple[str | tuple[str, ...], ...]:
    return effect, models[0] if len(models) == 1 else models, "replicas", f"{effect} for {len(models)}"


@pytest.fixture(scope="module")
def html() -> str:
    """A diff of four models: one change shared by three, one for the fourth, and a table with a row for each."""
    once = (row("drift", "org/a", "org/b", "org/b-2"), row("held", "org/c"))
    every = tuple(row(one, key) for one, key in (("drift", "org/a"), ("drift", "org/b"), ("drift", "org/b-2"),
                                                 ("held", "org/c")))
    return report_page(Report(
        kind="diff", identity="diff:lab", fleet="lab", title="Changes of fleet lab", conclusion="4 differences",
        facts=(("from", "main"), ("to", "work")), subjects=("org/a", "org/b", "org/b-2", "org/c"), findings=(),
        totals=(Total("drift", "drift", 3), Total("held", "held", 1), Total("additive", "additive", 0)), exit_code=2,
        tables=(Table("change", "What changed in meaning", COLUMNS, once),
                Table("difference", "differences, each by itself", COLUMNS, every, counted=True))))


def test_the_page_shows_totals_conclusion_and_facts(open_page: OpenPage, html: str) -> None:
    page = open_page(html)
    assert totals(page) == {"drift": 3, "held": 1, "additive": 0}
    assert page.locator("header .state").inner_text() == "Changes"
    assert "4 differences" in page.locator(".conclusion").inner_text()
    assert visible(page, "#facts dd") == ["main", "work"]


def test_a_model_is_found_in_a_row_about_several_models(open_page: OpenPage, html: str) -> None:
    page = open_page(html)
    page.fill("#filter", "org/b")
    assert visible(page, "#found .key") == ["org/b", "org/b-2"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert visible(page, "#change td.code") == ["drift"]
    assert visible(page, "#difference td.name") == ["org/b", "replicas"]


def test_text_is_searched_in_every_row(open_page: OpenPage, html: str) -> None:
    page = open_page(html)
    page.fill("#filter", "held for")
    assert visible(page, "#change td.code") == ["held"]
    assert page.locator("#matches").inner_text() == "2 of 6 rows"


def test_there_is_no_filter_for_changes_if_every_row_is_a_change(open_page: OpenPage, html: str) -> None:
    assert open_page(html).get_by_label("only what changes").count() == 0


def test_the_page_fits_on_a_phone(open_page: OpenPage, html: str) -> None:
    assert open_page(html, width=360).evaluate("() => document.documentElement.scrollWidth") <= 360


def test_blanks_in_a_name_are_shown_as_they_are(open_page: OpenPage, html: str) -> None:
    """`org/a` with one blank more is another key."""
    page = open_page(html.replace("org/c", "org/c  d"))
    assert "org/c  d" in [cell.inner_text() for cell in page.locator("td.name").all()]
