"""The page of any report, here of a diff: the same look, the same filter, no map."""

from __future__ import annotations

import pytest

from fleetctl.render.page.report_page import report_page
from fleetctl.render.report.model import Column, Report, Table, Total
from tests.browser.conftest import OpenPage
from tests.browser.reading import shown, totals

COLUMNS = (Column("effect", "effect"), Column("model", "model", name=True), Column("path", "what", name=True),
           Column("message", "what it does"))


def row(effect: str, *models: str) -> tuple[str | tuple[str, ...], ...]:
    return effect, models[0] if len(models) == 1 else models, "replicas", f"{effect} for {len(models)}"


@pytest.fixture(scope="module")
def html() -> str:
    """A diff of four models: one change for three of them, one more for the fourth, and each counted by itself."""
    once = (row("drift", "org/a", "org/b", "org/b-2"), row("held", "org/c"))
    every = tuple(row(one, key) for one, key in (("drift", "org/a"), ("drift", "org/b"), ("drift", "org/b-2"),
                                                 ("held", "org/c")))
    return report_page(Report(
        kind="diff", identity="diff:lab", fleet="lab", title="Changes of fleet lab", conclusion="4 differences",
        facts=(("from", "main"), ("to", "work")), subjects=("org/a", "org/b", "org/b-2", "org/c"), findings=(),
        totals=(Total("drift", "drift", 3), Total("held", "held", 1), Total("additive", "additive", 0)), exit_code=2,
        tables=(Table("change", "What changed in meaning", COLUMNS, once),
                Table("difference", "differences, each by itself", COLUMNS, every, counted=True))))


def test_totals_verdict_and_facts(open_page: OpenPage, html: str) -> None:
    page = open_page(html)
    assert totals(page) == {"drift": 3, "held": 1, "additive": 0}
    assert page.locator("header .state").inner_text() == "Changes"
    assert "4 differences" in page.locator(".conclusion").inner_text()
    assert shown(page, "#facts dd") == ["main", "work"]


def test_a_model_is_found_also_in_a_row_about_several(open_page: OpenPage, html: str) -> None:
    page = open_page(html)
    page.fill("#filter", "org/b")
    assert shown(page, "#found .key") == ["org/b", "org/b-2"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert shown(page, "#change td.code") == ["drift"]
    assert shown(page, "#difference td.name") == ["org/b", "replicas"]


def test_text_is_searched_in_every_row(open_page: OpenPage, html: str) -> None:
    page = open_page(html)
    page.fill("#filter", "held for")
    assert shown(page, "#change td.code") == ["held"]
    assert page.locator("#matches").inner_text() == "2 of 6 rows"


def test_nothing_is_said_to_stay_where_everything_is_a_change(open_page: OpenPage, html: str) -> None:
    assert open_page(html).get_by_label("only what changes").count() == 0


def test_it_is_read_on_a_phone(open_page: OpenPage, html: str) -> None:
    assert open_page(html, width=360).evaluate("() => document.documentElement.scrollWidth") <= 360
