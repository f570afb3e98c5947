"""Reads a page back as a user sees it: only what is visible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

IS_VISIBLE = "element => element.checkVisibility({contentVisibilityAuto: false})"


def totals(page: Page) -> dict[str, int]:
    """The counts at the top, from their visible text."""
    return {
        str(one.get_attribute("data-total")): int(one.locator("dd").text_content() or "")
        for one in page.locator(".total").all()
    }


def visible(page: Page, selector: str, read: str = "textContent") -> list[Any]:
    """A property of every visible element, in order."""
    found: list[Any] = page.evaluate(
        f"selector => [...document.querySelectorAll(selector)].filter({IS_VISIBLE}).map(found => found.{read})",
        selector)
    return found


def visible_models(page: Page) -> list[str]:
    """The keys in the table of models."""
    return [str(text) for text in visible(page, ".of-model td.name")]


def visible_nodes(page: Page) -> list[str]:
    """The names of the nodes on the map."""
    return [str(text) for text in visible(page, ".node .about-node .key")]


def cells(page: Page, side: str) -> dict[str, list[str]]:
    """The texts of the cards per node, folded or not, on one side: before or after; `both` belongs to either."""
    found: dict[str, list[str]] = page.evaluate(
        """side => Object.fromEntries([...document.querySelectorAll('.node')].map(node => [node.dataset.node,
             [...node.querySelectorAll(`.strip[data-side=${side}] > .cell, .strip[data-side=both] > .cell`)]
               .map(cell => cell.textContent)]))""", side)
    return found


def replicas(page: Page, look: str, side: str = "after") -> set[str]:
    """The replicas of a kind (new, live, foreign) on one side of the map."""
    found: list[str] = page.evaluate(
        """([look, side]) => [...document.querySelectorAll(
             `[data-side=${side}] .${look}[data-r], [data-side=both] .${look}[data-r]`)].map(one => one.dataset.r)""",
        [look, side])
    return set(found)
