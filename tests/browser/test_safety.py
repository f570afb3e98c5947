"""Text of a fleet or a cluster stays text, and the page itself has almost no permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.render.page.plan_page import plan_page
from fleetctl.render.page.report_page import report_page
from fleetctl.render.report.of_plan import plan_report
from fleetctl.render.visible import visible
from tests.browser.conftest import OpenPage
from tests.browser.page_worlds import EVIL, LAB, Drawn, drawn, hostile
from tests.browser.reading import visible_models, visible_nodes

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def harmless() -> Drawn:
    """The hostile plan with harmless names; its page must have the same elements."""
    from tests.browser import page_worlds

    kept = page_worlds.EVIL
    page_worlds.EVIL = "plain"
    try:
        return hostile()
    finally:
        page_worlds.EVIL = kept


def test_hostile_names_stay_text(open_page: OpenPage) -> None:
    made = hostile()
    page = open_page(plan_page(made.plan, made.picture))
    assert page.locator("h1").inner_text() == f"Plan for fleet {visible(EVIL)}"
    assert visible_models(page)[0] == visible(EVIL)
    assert visible_nodes(page) == [visible(EVIL)]
    assert page.locator("img, iframe, object, embed, link, base").count() == 0
    assert page.locator("script").count() == 1
    assert page.locator("title").count() == 1


def test_hostile_names_add_no_element(open_page: OpenPage) -> None:
    def elements(made: Drawn) -> list[str]:
        page = open_page(plan_page(made.plan, made.picture))
        found: list[str] = page.evaluate("() => [...document.querySelectorAll('*')].map(one => one.tagName)")
        return found

    assert elements(hostile()) == elements(harmless())


def test_the_filter_takes_hostile_names(open_page: OpenPage) -> None:
    made = hostile()
    page = open_page(plan_page(made.plan, made.picture))
    page.locator(".legend a").first.click()
    assert visible_nodes(page) == [visible(EVIL)]
    assert page.locator("#filter").input_value() == visible(EVIL)
    again = open_page(plan_page(made.plan, made.picture), fragment=page.evaluate("() => location.hash"))
    assert visible_nodes(again) == [visible(EVIL)]
    page.locator(".node .cell").first.hover()
    assert visible(EVIL) in page.locator("#inspector").inner_text()


def test_hostile_text_in_any_report_stays_text(open_page: OpenPage) -> None:
    page = open_page(report_page(plan_report(hostile().plan)))
    assert visible(EVIL) in page.locator("main").inner_text()
    assert page.locator("img").count() == 0


def test_the_policy_of_the_page_allows_only_its_own_script_and_style(open_page: OpenPage, small_html: str) -> None:
    policy = open_page(small_html).locator("meta[http-equiv]").get_attribute("content") or ""
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_an_injected_script_does_not_run(browser: Browser, small_html: str) -> None:
    """A second line of defense. Not opened by `open_page`, as Chromium writes a message about the refusal."""
    context = browser.new_context()
    page = context.new_page()
    page.set_content(small_html.replace("<main", "<script>document.title = 'taken'</script><main", 1))
    assert page.title() == "Plan for fleet lab"
    assert page.locator("#bar").is_visible()
    context.close()


def test_a_page_stores_nothing_in_the_browser(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    page.fill("#filter", "router")
    page.keyboard.press("Enter")
    assert page.evaluate("() => [document.cookie, localStorage.length, sessionStorage.length, window.name]") == [
        "", 0, 0, ""]


def test_env_values_of_engines_are_not_on_the_page() -> None:
    world = {**LAB, "fleet": {**LAB["fleet"], "models": [{"key": "a", "replicas": 1, "workers": [
        {"name": "main", "members": [{"role": "Standalone", "resources": {"gpus": 1}, "engine": {
            "command": ["serve"], "env": {"TOKEN": "hush-hush"}}}]}]}]}}
    made = drawn(world)
    assert "hush-hush" in made.plan.model_dump_json()
    assert "hush-hush" not in plan_page(made.plan, made.picture)
