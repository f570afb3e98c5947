"""The status page of a watch in a real browser: it follows changes and keeps the filter of its reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, serve
from small_watcher import advance, watcher_of

from fleetctl.cli.watch_server import Served, serving
from fleetctl.watch.watcher import Watcher
from tests.browser.conftest import Tab, Tabs
from tests.browser.page_worlds import EVIL
from tests.browser.test_looks import violations


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    stand_in = ClusterStandIn()
    stand_in.add_node("node-a")
    with serve(stand_in):
        yield stand_in


@pytest.fixture
def watcher(cluster: ClusterStandIn, tmp_path: Path) -> Watcher:
    found = watcher_of(cluster, tmp_path / "fleet.yaml")
    advance(found)
    return found


@pytest.fixture
def page(watcher: Watcher) -> Iterator[Served]:
    with serving(watcher, "127.0.0.1:0", None) as found:
        assert found
        yield found


def open_tab(tabs: Tabs, page: Served, **context: bool) -> Tab:
    tab = tabs(**context)
    tab.reset()
    tab.page.set_viewport_size({"width": 1280, "height": 900})
    tab.page.goto(f"{page.url}/")
    return tab


def test_a_change_appears_without_a_reload_and_the_filter_stays(
    tabs: Tabs, page: Served, watcher: Watcher, cluster: ClusterStandIn
) -> None:
    tab = open_tab(tabs, page)
    assert "Not everything runs" in tab.page.locator("header").inner_text()
    tab.page.fill("#filter", "org/m")
    tab.page.locator("#facts").scroll_into_view_if_needed()
    cluster.add_node("node-b")
    advance(watcher)
    page.turned()
    tab.page.locator("[data-node=node-b]").first.wait_for(state="attached")
    assert tab.page.locator("#filter").input_value() == "org/m"
    assert tab.messages == []
    assert {url.removeprefix(page.url).partition("?")[0] for url in tab.requested} == {"/", "/events"}
    tab.page.goto("about:blank")


def test_the_map_is_the_first_part_of_the_status_page(tabs: Tabs, page: Served) -> None:
    tab = open_tab(tabs, page)
    assert tab.page.evaluate("() => [...document.querySelectorAll('main > [id]')].map(part => part.id)")[:2] == [
        "bar", "map"]
    tab.page.goto("about:blank")


def test_the_time_of_the_last_look_is_updated_without_a_reload(tabs: Tabs, page: Served, watcher: Watcher) -> None:
    tab = open_tab(tabs, page)
    tab.page.evaluate("() => { window.same = true; }")
    watcher.looked_at = 86_400
    page.turned()
    tab.page.get_by_text("1970-01-02T00:00:00Z").wait_for()
    time = tab.page.get_by_title("1970-01-02T00:00:00Z")
    assert str(time.get_attribute("data-ago")).endswith(" days ago")
    assert tab.page.evaluate("() => window.same") is True
    tab.page.goto("about:blank")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_the_status_page(tabs: Tabs, page: Served, scheme: str) -> None:
    tab = open_tab(tabs, page)
    tab.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    assert violations(tab.page, scheme=scheme) == []
    tab.page.set_viewport_size({"width": 360, "height": 800})
    assert tab.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    tab.page.goto("about:blank")


def test_without_scripts_the_page_is_complete_and_refreshes_itself(tabs: Tabs, page: Served) -> None:
    tab = open_tab(tabs, page, java_script_enabled=False)
    assert "INSUFFICIENT_GPU" in tab.page.locator("main").inner_text()
    assert 'http-equiv="refresh"' in tab.page.content()
    assert tab.requested == [f"{page.url}/"]
    tab.page.goto("about:blank")


def test_hostile_names_stay_text_on_the_status_page(
    tabs: Tabs, watcher: Watcher, cluster: ClusterStandIn, page: Served, tmp_path: Path
) -> None:
    cluster.add_node(EVIL)
    cluster.add_replica("org/m", 0, cluster.nodes[-1]["node_id"])
    (tmp_path / "fleet.yaml").write_text("a: '<img src=x onerror=alert(1)>'")
    advance(watcher)
    page.turned()
    tab = open_tab(tabs, page)
    assert tab.page.locator("img, iframe, object, embed, link, base").count() == 0
    assert tab.page.locator("script").count() == 1
    assert "onerror" in tab.page.locator("main").inner_text()
    assert tab.messages == []
    tab.page.goto("about:blank")

