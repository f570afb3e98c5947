"""One Chromium for all tests, a fresh context for each, and what must hold on every page: silence and no request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.render.page.plan_page import render_plan_page
from tests.browser.chromium import ABSENT, find_chromium, launch_options, must_not_be_skipped
from tests.browser.page_worlds import Drawn, lab, large

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whatever needs the browser."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser; without one, tests fail in CI and are skipped elsewhere, where the message says how to get it."""
    path = find_chromium(os.environ)
    if path is None:
        (pytest.fail if must_not_be_skipped(os.environ) else pytest.skip)(ABSENT)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(**launch_options(path))  # type: ignore[arg-type]
        yield chromium
        chromium.close()


@dataclass
class Heard:
    """What a page did beside showing itself."""

    said: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def listen(self, page: Page) -> None:
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.requested.append(request.url))


OpenPage = Callable[..., "Page"]
Contexts = Callable[..., "BrowserContext"]
EMPTY = Path(__file__).with_name("empty.html")


@pytest.fixture(scope="session")
def contexts(browser: Browser) -> Contexts:
    """A context of the browser by its options, with one page that stays open.

    A page keeps nothing that a context could hand on (test_safety.py holds that), and the page that stays keeps the
    process alive that draws the others: to start one costs more than most tests.
    """
    made: dict[str, BrowserContext] = {}

    def context(**options: Any) -> BrowserContext:
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = browser.new_context(**options)
            made[key].new_page().goto(EMPTY.as_uri())
        return made[key]

    return context


@pytest.fixture
def open_page(contexts: Contexts, tmp_path: Path) -> Iterator[OpenPage]:
    """Open HTML from a file in a page of its own; afterwards: nothing was said, only the file was asked for."""
    opened: list[tuple[Page, Heard, str]] = []

    def open_one(
        html: str, *, fragment: str = "", width: int = 1280, height: int = 900, color_scheme: str = "light",
        forced_colors: str | None = None, contrast: str | None = None, **context: Any,
    ) -> Page:
        file = tmp_path / f"page-{len(opened)}.html"
        file.write_text(html, encoding="utf-8")
        heard = Heard()
        page = contexts(**context).new_page()
        opened.append((page, heard, file.as_uri()))
        page.set_default_timeout(30_000)  # these machines are shared
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(reduced_motion="reduce", color_scheme=color_scheme, forced_colors=forced_colors,  # type: ignore[arg-type]
                           contrast=contrast)  # type: ignore[arg-type]
        heard.listen(page)
        page.goto(file.as_uri() + fragment)
        return page

    yield open_one
    for page, _, _ in opened:
        page.close()
    for _, heard, address in opened:
        assert heard.said == []
        assert {url.partition("#")[0] for url in heard.requested} == {address}


@pytest.fixture(scope="session")
def small() -> Drawn:
    """The lab, with every outcome."""
    return lab()


@pytest.fixture(scope="session")
def small_html(small: Drawn) -> str:
    """Its page."""
    return render_plan_page(small.plan, small.picture)


@pytest.fixture(scope="session")
def thousand() -> Drawn:
    """A fleet of 1,000 nodes of eight cards."""
    return large()


@pytest.fixture(scope="session")
def thousand_html(thousand: Drawn) -> str:
    """Its page."""
    return render_plan_page(thousand.plan, thousand.picture)
