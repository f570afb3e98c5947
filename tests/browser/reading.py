"""Reads a page back as a person would: what is shown, never what the code meant to show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHOWN = "element => element.checkVisibility({contentVisibilityAuto: false})"


def totals(page: Page) -> dict[str, int]:
    """The counts at the top, from what is written there."""
    return {
        str(one.get_attribute("data-total")): int(one.locator("dd").text_content() or "")
        for one in page.locator(".total").all()
    }


def shown(page: Page, selector: str, read: str = "textContent") -> list[Any]:
    """A property of every element that can be seen, in order."""
    found: list[Any] = page.evaluate(
        f"selector => [...document.querySelectorAll(selector)].filter({SHOWN}).map(found => found.{read})", selector)
    return found


def shown_models(page: Page) -> list[str]:
    """The keys in the table of models."""
    return [str(text) for text in shown(page, ".of-model td.name")]


def shown_nodes(page: Page) -> list[str]:
    """The names of the nodes on the map."""
    return [str(text) for text in shown(page, ".node .about-node .key")]


def cells(page: Page, side: str) -> dict[str, list[str]]:
    """Per node of one side (before, after; both counts for either): what stands on its cards, folded away or not."""
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
