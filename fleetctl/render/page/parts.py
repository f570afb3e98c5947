"""The parts that all pages are made of: header, totals, sections, folds, facts, the bar of the filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fleetctl.documents.quantity import count_of
from fleetctl.planner.outcome import REFUSED
from fleetctl.render.page.markup import Content, Markup, el
from fleetctl.render.report.model import Report, Total
from fleetctl.render.report.tones import count_tone

STATES = {
    "plan": {0: ("calm", "Nothing to do"), 2: ("good", "Changes"), 3: ("warn", "Partial"), 4: ("bad", "Refused")},
    "diff": {0: ("calm", "No changes"), 2: ("good", "Changes")},
    "apply": {0: ("good", "Done"), 3: ("warn", "Partial")},
    "problems": {0: ("good", "Valid")},
    "watch": {0: ("good", "In sync"), 3: ("warn", "Not all runs"), 4: ("bad", "Refused")},
}
"""A tone and a word for the state of a document, by its kind and its detailed exit code; any other has failed.

A history has no word: it is neither good nor bad.
"""


def header(report: Report) -> Markup:
    """Return the top of a page: what it is about, a word for its state, and the conclusion."""
    return el("header", el("p", "fleetctl", class_="kind"), el("h1", report.title),
              el("p", _state(report), " ", report.conclusion, class_="conclusion"))


def _state(report: Report) -> Markup | None:
    if report.kind not in STATES:
        return None
    tone, word = STATES[report.kind].get(report.exit_code, ("bad", "Failed"))
    return el("span", word, class_=f"state {tone}")


def totals(report: Report) -> Markup:
    """Return the counts; each is also in `data-total` and `data-count`. Zeros that say nothing are folded."""
    seen, zeros = (el("dl", (_total(one, refused=report.exit_code == REFUSED) for one in report.totals
                             if one.shown == shown), class_="totals") for shown in (True, False))
    folded = sum(not one.shown for one in report.totals)
    words = f"{count_of(folded, 'count')} {'is' if folded == 1 else 'are'} 0"
    return el("div", seen, fold(words, zeros) if folded else None, class_="counts")


def _total(one: Total, *, refused: bool) -> Markup:
    tone: str = count_tone(one.key, one.count)
    if one.key == "policy" and one.count:
        tone = "bad" if refused else "warn"  # --force may lift all of it
    return el("div", el("dt", one.label), el("dd", str(one.count)), class_=f"total {tone}".strip(),
              data_total=one.key, data_count=one.count)


def fold(summary: str, *content: Content, anchor: str | None = None, same: bool = False) -> Markup:
    """Return content that opens on demand; `same` = about what does not change."""
    return el("details", el("summary", summary), *content, id=anchor, class_="fold", data_same=same)


def facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Return what the document was made from, name by name."""
    rows = (el("div", el("dt", name), el("dd", value)) for name, value in pairs)
    return el("section", el("h2", "Made from"), el("dl", rows, class_="facts"), id="facts")


def left_out(count: int, noun: str, where: str = "--format json has everything") -> Markup | None:
    """Say how many are not shown, and where to find them; None where all are shown."""
    return el("p", f"and {count_of(count, f'more {noun}')}; {where}", class_="soft") if count > 0 else None


def contents(sections: Sequence[tuple[str, str]]) -> Markup:
    """Return links to the parts of the page."""
    return el("nav", (el("a", title, href=f"#{anchor}") for anchor, title in sections), aria_label="Contents")


def filter_bar(*, nodes: bool, same: bool) -> Markup:
    """Return the bar of the filter, which only the script shows: without a script it has no effect.

    `nodes` = the page has a map; `same` = the page has a part about what does not change.
    """
    words = "Filter by model or node" if nodes else "Filter"
    toggle = el("label", el("input", type="checkbox", id="only"), " only what changes") if same else None
    field = el("input", id="filter", type="text", role="combobox", placeholder=words, autocomplete="off",
               spellcheck="false", aria_label=words, aria_expanded="false", aria_controls="found",
               aria_autocomplete="list", aria_keyshortcuts="/")
    found = el("ul", id="found", role="listbox", aria_label="Names", hidden=True)
    return el("form", el("div", field, el("kbd", "/", aria_hidden="true"), found, class_="box"),
              el("p", id="matches", role="status"), toggle, id="bar", role="search", aria_label="Filter", hidden=True)
