"""Times are relative to the reader's clock on the screen, and exact wherever a page may be read later."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from fleetctl.render.page.report_page import report_page
from fleetctl.render.report.model import Column, Report, Table
from tests.browser.conftest import OpenPage

if TYPE_CHECKING:
    from playwright.sync_api import Page

AT = "2026-03-04T12:00:00Z"
COLUMNS = (Column("model", "model", name=True), Column("startedAt", "started"), Column("message", "what"))
ROWS = (("org/a", "2026-03-04T11:40:00Z", "not ready since 2026-03-04T11:59:40Z: no answer"),
        ("org/b-2026-03-04T12:00:00Z", "2026-03-02T12:00:00Z", "tried again 2026-03-04T13:30:00Z"))
SHOWN = "() => [...document.querySelectorAll('time')].map(time => getComputedStyle(time, '::after').content)"


@pytest.fixture
def html() -> str:
    return report_page(Report(kind="history", title="History", conclusion=f"as of {AT}", facts=(("read", AT),),
                              tables=(Table("run", "Runs", COLUMNS, ROWS),)))


def opened_at(open_page: OpenPage, html: str, clock: str = AT) -> Page:
    """A page whose clock stands at a time; the tab is opened once, so the page is loaded again with that clock."""
    page = open_page(html, locale="en-GB")  # a context of its own: its clock stays set
    page.clock.set_fixed_time(datetime.fromisoformat(clock.replace("Z", "+00:00")).astimezone(timezone.utc))
    page.reload()
    return page


def test_times_are_relative_and_the_exact_one_is_the_title(open_page: OpenPage, html: str) -> None:
    page = opened_at(open_page, html)
    assert page.evaluate(SHOWN) == ['"just now"', '"20 minutes ago"', '"just now"', '"2 days ago"',
                                    '"1 hour from now"', '"just now"']
    time = page.locator("td time").first
    assert (time.get_attribute("title"), time.get_attribute("datetime")) == ("2026-03-04T11:40:00Z",) * 2
    assert time.locator("span").bounding_box()["width"] <= 1  # type: ignore[index]


def test_a_page_opened_days_later_counts_from_that_day(open_page: OpenPage, html: str) -> None:
    assert opened_at(open_page, html, "2026-03-09T12:00:00Z").evaluate(SHOWN)[-1] == '"5 days ago"'


def test_a_page_saved_as_it_was_shown_has_exact_times_without_scripts(open_page: OpenPage, html: str) -> None:
    saved = opened_at(open_page, html).content()
    page = open_page(saved, java_script_enabled=False)
    assert page.locator("#facts dd").bounding_box()["width"] > 100  # type: ignore[index]
    assert set(page.evaluate(SHOWN)) == {"none"}
    assert page.locator("td time span").first.bounding_box()["width"] > 100  # type: ignore[index]


def test_print_has_exact_times(open_page: OpenPage, html: str) -> None:
    page = opened_at(open_page, html)
    page.emulate_media(media="print")
    assert set(page.evaluate(SHOWN)) == {"none"}
    assert page.locator("td time span").first.bounding_box()["width"] > 100  # type: ignore[index]


def test_the_filter_finds_exact_times(open_page: OpenPage, html: str) -> None:
    page = opened_at(open_page, html)
    page.evaluate("() => { document.getElementById('bar').hidden = false; }")
    page.fill("#filter", "2026-03-02T12")
    assert page.locator("tr[data-about]:visible").count() == 1


def test_a_name_with_a_time_in_it_stays_a_name(open_page: OpenPage, html: str) -> None:
    page = opened_at(open_page, html)
    assert page.locator("td.name time").count() == 0
    assert page.locator("td.name").nth(1).inner_text() == "org/b-2026-03-04T12:00:00Z"
