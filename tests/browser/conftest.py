"""One Chromium and one page for all tests; every page must write no message and send no request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.render.page.plan_page import plan_page
from tests.browser.chromium import ABSENT, find_chromium, launch_options
from tests.browser.page_worlds import Drawn, lab, large
from tests.external_programs import must_not_be_skipped

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that needs the browser."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The browser, until the last test here has ended; without one, tests fail in CI and are skipped elsewhere, with a
    message about how to install it.
    """
    path = find_chromium(os.environ)
    if path is None:
        (pytest.fail if must_not_be_skipped(os.environ) else pytest.skip)(ABSENT)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(**launch_options(path))  # type: ignore[arg-type]
        yield chromium
        chromium.close()


class Tab:
    """A page of the browser, with its messages and requests."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.messages: list[str] = []
        self.requested: list[str] = []
        page.set_default_timeout(30_000)  # test machines may be slow
        page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.messages.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.requested.append(request.url))

    def reset(self) -> None:
        """Clear the records and move the pointer into the corner."""
        self.page.mouse.move(0, 0)
        self.messages.clear()
        self.requested.clear()


OpenPage = Callable[..., "Page"]
Tabs = Callable[..., Tab]


@pytest.fixture(scope="package")
def tabs(browser: Browser) -> Tabs:
    """A tab per set of context options, kept open because opening one takes longer than most tests.

    Pages store nothing that could affect the next page in the tab (see test_safety.py).
    """
    opened_tabs: dict[str, Tab] = {}

    def tab(**options: Any) -> Tab:
        key = repr(sorted(options.items()))
        if key not in opened_tabs:
            opened_tabs[key] = Tab(browser.new_context(**options).new_page())
        return opened_tabs[key]

    return tab


@pytest.fixture
def open_page(tabs: Tabs, tmp_path: Path) -> Iterator[OpenPage]:
    """Open HTML from a file in its own page; afterwards there must be no message and no request but for the file."""
    opened: list[tuple[Tab, str]] = []
    more: list[Tab] = []

    def open_one(
        html: str, *, fragment: str = "", width: int = 1280, height: int = 900, color_scheme: str = "light",
        forced_colors: str = "none", contrast: str = "no-preference", **context: Any,
    ) -> Page:
        file = tmp_path / f"page-{len(opened)}.html"
        file.write_text(html, encoding="utf-8")
        tab = tabs(**context)
        if any(used is tab for used, _ in opened):
            tab = Tab(tab.page.context.new_page())
            more.append(tab)
        tab.reset()
        opened.append((tab, file.as_uri()))
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.page.emulate_media(media="screen", reduced_motion="reduce", color_scheme=color_scheme,  # type: ignore[arg-type]
                               forced_colors=forced_colors, contrast=contrast)  # type: ignore[arg-type]
        tab.page.goto(file.as_uri() + fragment)
        return tab.page

    yield open_one
    for tab in more:
        tab.page.close()
    for tab, address in opened:
        assert tab.messages == []
        assert {url.partition("#")[0] for url in tab.requested} == {address}


@pytest.fixture(scope="session")
def small() -> Drawn:
    """The lab fleet, with every outcome."""
    return lab()


@pytest.fixture(scope="session")
def small_html(small: Drawn) -> str:
    """Its page."""
    return plan_page(small.plan, small.picture)


@pytest.fixture(scope="session")
def thousand() -> Drawn:
    """A fleet of 1,000 nodes of eight cards."""
    return large()


@pytest.fixture(scope="session")
def thousand_html(thousand: Drawn) -> str:
    """Its page."""
    return plan_page(thousand.plan, thousand.picture)
