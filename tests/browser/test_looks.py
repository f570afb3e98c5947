"""The page is accessible: contrast in both schemes, on a phone, in print, by keyboard, with forced colors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.render.page.plan_page import plan_page
from fleetctl.render.page.report_page import report_page
from fleetctl.render.report.model import Column, Table
from fleetctl.render.report.of_plan import plan_report
from tests.browser.conftest import OpenPage
from tests.browser.page_worlds import Drawn, hostile
from tests.browser.reading import visible_nodes

if TYPE_CHECKING:
    from playwright.sync_api import Page

RULES = {"light": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], "dark": ["color-contrast"]}
"""The axe rules per scheme; the dark page differs only in its colors."""


def violations(page: Page, part: str | None = None, scheme: str = "light") -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    answer: dict[str, Any] = Axe().run(page, context=part, options={"runOnly": RULES[scheme]}).response
    assert "color-contrast" in {rule["id"] for rule in answer["passes"]}, "axe did not check the contrast"
    return [f"{one['id']}: {node['html'][:120]} {node.get('failureSummary', '')}" for one in answer["violations"]
            for node in one["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(open_page: OpenPage, small_html: str, scheme: str) -> None:
    page = open_page(small_html, color_scheme=scheme)
    page.locator(".node [tabindex]").focus()
    assert violations(page, scheme=scheme) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_while_a_name_is_being_chosen(open_page: OpenPage, small_html: str, scheme: str) -> None:
    page = open_page(small_html, color_scheme=scheme)
    page.fill("#filter", "qwen")
    page.keyboard.press("ArrowDown")
    assert page.locator("#found").is_visible()
    assert violations(page, "#bar", scheme) == []


def test_axe_finds_nothing_on_a_phone_and_on_the_page_of_any_report(open_page: OpenPage, small: Drawn) -> None:
    assert violations(open_page(report_page(plan_report(small.plan)), width=360)) == []


def test_letters_are_readable_on_the_color_of_every_model(open_page: OpenPage, small_html: str) -> None:
    """The contrast by WCAG 2 of the colors that the browser computes; 4.5 is AA for small text."""
    from fleetctl.render.placement_map import color_of

    page = open_page(small_html)
    ratios = page.evaluate("""colors => colors.map(color => {
      const cell = document.querySelector('.node .cell.m0');
      cell.style.setProperty('--m', color);
      const light = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).map(v => v / 255)
          .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126*r + .7152*g + .0722*b; };
      const style = getComputedStyle(cell);
      const [back, front] = [light(style.backgroundColor), light(style.color)];
      return (Math.max(back, front) + .05) / (Math.min(back, front) + .05); })""",
        [color_of(number) for number in range(700)])
    assert len(ratios) == 700
    assert min(ratios) >= 4.5


def test_no_page_scrolls_sideways(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    for width in (1280, 768, 360, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        beyond = page.evaluate("""() => [...document.querySelectorAll('main *')].filter(one => one.checkVisibility()
            && one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 80))""")
        assert beyond == []


def test_hostile_names_and_many_columns_do_not_make_a_page_scroll_sideways(open_page: OpenPage) -> None:
    made = hostile()
    words = [Column(f"column{number}", f"column {number}", name=number % 2 == 0) for number in range(10)]
    crowded = Table("run", "Runs", tuple(words), (("a-rather-long-word",) * 10, ("x" * 300, *("y",) * 9)))
    report = replace(plan_report(made.plan), tables=(crowded,))
    for html in (plan_page(made.plan, made.picture), report_page(report)):
        page = open_page(html)
        for width in (1000, 700, 320):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_a_phone_shows_no_shortcut_and_only_nonzero_counts(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html, width=375)
    assert page.locator(".box kbd").is_hidden()
    seen = {str(one.get_attribute("data-total")): int(one.inner_text().split()[-1])
            for one in page.locator(".total").all() if one.is_visible()}
    assert list(seen)[:4] == ["wanted", "live", "create", "blocked"]
    assert 0 not in list(seen.values())[4:]
    assert page.locator(".counts details").count() == 1


def test_node_names_do_not_break_and_paths_break_at_their_dots(open_page: OpenPage, small: Drawn) -> None:
    rows = (("workers.main.members[0].engine.args", "8 GPUs on each of new-1, new-2, new-3, new-4, new-5, new-6"),)
    table = Table("place", "Would create", (Column("what", "what", name=True), Column("place", "where")), rows)
    page = open_page(report_page(replace(plan_report(small.plan), tables=(table,))), width=320)
    lines = page.evaluate("() => [...document.querySelectorAll('td .whole')].map((one) => one.getClientRects().length)")
    assert lines == [1] * 6
    broken = page.evaluate("""() => { const parts = document.querySelector('td.name').childNodes;
        return [...parts].filter((one) => one.data).map((one) => one.data); }""")
    assert broken == ["workers.", "main.", "members[0].", "engine.", "args"]


def test_on_a_phone_before_is_above_after_and_both_are_labeled(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html, width=360)
    sides = page.locator('[data-node="h100-3"] .strip')
    before, after = sides.nth(0).bounding_box(), sides.nth(1).bounding_box()
    assert before is not None
    assert after is not None
    assert before["y"] + before["height"] <= after["y"]
    named = page.evaluate("""() => [...document.querySelectorAll('[data-node="h100-3"] .strip')].map(
        strip => getComputedStyle(strip, '::before').content)""")
    assert named == ['"before"', '"after"']


def test_in_a_wide_window_before_is_beside_after(open_page: OpenPage, small_html: str) -> None:
    sides = open_page(small_html).locator('[data-node="h100-3"] .strip')
    before, after = sides.nth(0).bounding_box(), sides.nth(1).bounding_box()
    assert before is not None
    assert after is not None
    assert before["y"] == after["y"]
    assert before["x"] + before["width"] <= after["x"]


def test_print_is_light_shows_folds_and_omits_the_controls(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html, color_scheme="dark")
    assert page.get_by_text("google/gemma-3-27b-it", exact=True).first.is_visible()
    page.emulate_media(media="print")
    assert page.evaluate("() => getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#bar").is_hidden()
    assert page.locator(".of-model td.name", has_text="Qwen/Qwen3-8B").is_visible()
    assert "a100-old" in visible_nodes(page)


def test_print_shows_every_card_of_a_large_fleet(open_page: OpenPage, thousand_html: str) -> None:
    page = open_page(thousand_html)
    page.emulate_media(media="print")
    assert len(visible_nodes(page)) == 1000
    heights = page.evaluate("() => [...document.querySelectorAll('.node .cell')].map(cell => cell.offsetHeight)")
    assert min(heights) > 0


def test_every_focusable_element_has_a_visible_focus(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    without = []
    stops = page.evaluate("""() => [...document.querySelectorAll('a, input, summary, [tabindex]')]
                                   .filter(one => one.checkVisibility()).length""")
    for _ in range(stops):
        page.keyboard.press("Tab")
        look = page.evaluate("""() => { const one = document.activeElement, style = getComputedStyle(one);
            return [one.outerHTML.slice(0, 60), style.outlineStyle, parseFloat(style.outlineWidth)] }""")
        if look[1] == "none" or look[2] < 2:
            without.append(look)
    assert stops > 20
    assert without == []


def test_nothing_moves_with_reduced_motion(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html)
    assert page.evaluate("() => getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert page.evaluate("() => document.getAnimations().length") == 0


def test_with_forced_colors_cards_still_have_borders_and_letters(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html, forced_colors="active")
    look = page.evaluate("""() => { const cell = document.querySelector('[data-node="h100-3"] [data-side=after] .cell');
        return [cell.textContent, getComputedStyle(cell).borderTopStyle] }""")
    assert look == ["+A", "solid"]


def test_with_more_contrast_there_are_no_soft_grays(open_page: OpenPage, small_html: str) -> None:
    page = open_page(small_html, contrast="more")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colors = page.evaluate("""() => ['.total dt', 'h1'].map(one =>
            getComputedStyle(document.querySelector(one)).color)""")
        assert colors[0] == colors[1]
