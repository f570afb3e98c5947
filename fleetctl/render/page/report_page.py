"""The page of a report: state, filter bar, placement map, totals, tables as HTML, and the facts it was made from.

HTML is built as values: text is escaped unless it is `Markup`, so that no text from a fleet or a cluster becomes an
element. Invisible characters (control characters, right-to-left overrides) are escaped first, as in every format. Every
page is one HTML file with its own style and script, and a policy that allows nothing else. The policy lists both by
their hashes, so the browser does not run injected text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

from fleetctl.documents.quantity import count_of
from fleetctl.planner.policy import REFUSED
from fleetctl.render.report.model import UNBROKEN, Cell, Column, Report, Table, Total, count_tone, text_tone
from fleetctl.render.visible import visible

ROWS_SHOWN = 2_000
"""The most rows of a table: more make a page slow. The page says how many are omitted."""

OPEN_UP_TO = 20
"""A foldable table with at most this many rows starts open."""

SUBJECTS = ("key", "model", "replica", "replicas")
"""The columns with the subject of a row: a model, or replicas of one."""

SHORT_TITLES = {"policy": "Policy", "effect": "This change", "difference": "Changes", "place": "Places"}
"""Titles in the contents for tables whose own titles are long."""
STATES = {
    "plan": {0: ("calm", "Nothing to do"), 2: ("good", "Changes"), 3: ("warn", "Partial"), 4: ("bad", "Refused")},
    "diff": {0: ("calm", "No changes"), 2: ("good", "Changes")},
    "apply": {0: ("good", "Done"), 3: ("warn", "Partial")},
    "problems": {0: ("good", "Valid")},
    "watch": {0: ("good", "In sync"), 3: ("warn", "Not everything runs"), 4: ("bad", "Refused")},
}
"""Tone and word for the state of a document, by its kind and detailed exit code; any other code means "Failed".

A kind that is not listed has no state: a history is neither good nor bad.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page; with `title` "" it is not listed in the contents."""

    anchor: str
    title: str
    body: Markup


def report_page(report: Report, map_: Part | None = None, rules: str = "") -> str:
    """Return the page of a report, with an optional placement map and its style rules."""
    return html_page(report.title, report_content(report, map_), rules=rules)


def report_content(report: Report, map_: Part | None = None) -> Markup:
    """Return the content of a report's page, with an optional placement map.

    The map is the first part: what happens to the cards is seen at a glance, and the rest is read.
    """
    parts = list(_table_parts(report.tables))
    listed = [map_, *parts] if map_ else parts
    state = None
    if report.kind in STATES:
        tone, word = STATES[report.kind].get(report.exit_code, ("bad", "Failed"))
        state = el("span", word, class_=f"state {tone}")
    header = el("header", el("p", "fleetctl", class_="kind"), el("h1", report.title),
                el("p", state, " ", dated(report.conclusion), class_="conclusion"))
    links = [*((part.anchor, part.title) for part in listed if part.title), ("facts", "Made from")]
    contents = el("nav", (el("a", title, href=f"#{anchor}") for anchor, title in links), aria_label="Contents")
    bar = _filter_bar(nodes=bool(map_), same=bool(map_) or any(map(_is_unchanged, report.tables)))
    facts = (el("div", el("dt", name), el("dd", dated(value))) for name, value in report.facts)
    main = el("main", header, contents, bar, map_.body if map_ else None, _totals(report),
              (part.body for part in parts),
              el("section", el("h2", "Made from"), el("dl", facts, class_="facts"), id="facts"),
              data_kind=report.kind, data_exit_code=report.exit_code)
    # the line at the bottom of the window that names the holders of a card; the script fills it. It is hidden from
    # screen readers: the focused cell has the same text as its label
    return Markup(main + el("div", id="inspector", hidden=True, aria_hidden="true"))


def _table_parts(tables: Sequence[Table]) -> Iterator[Part]:
    """Yield a part for every table meant for pages."""
    tables = [table for table in tables if "page" in table.readers]
    for number, table in enumerate(tables):
        is_repeated = any(other.key == table.key for other in tables[:number])
        anchor = f"{table.key}-{number}" if is_repeated else table.key
        if table.counted:
            yield Part(anchor, "", fold(f"{len(table.rows)} {table.title}", _note(table), _table(table),
                                        anchor=anchor, same=_is_unchanged(table)))
            continue
        heading = el("h2", table.heading)
        inside = (_note(table), _table(table)) if table.rows else (_note(table),)
        if table.folded:
            count = el("span", str(len(table.rows)), class_="count")
            opened = len(table.rows) <= OPEN_UP_TO
            body = el("section", el("details", el("summary", heading, count), *inside, open=opened), id=anchor)
        else:
            body = el("section", heading, *inside, id=anchor)
        yield Part(anchor, SHORT_TITLES.get(table.key, table.title), body)


def _is_unchanged(table: Table) -> bool:
    """Return whether a table lists the models with nothing to do."""
    return table.counted and table.key == "model"


def _note(table: Table) -> Markup | None:
    return el("p", dated(table.note)) if table.note else None


def _table(table: Table) -> Markup:
    kept = [index for index, column in enumerate(table.columns)
            if column.terminal != "filled" or any(row[index] for row in table.rows)]
    columns = [table.columns[index] for index in kept]
    subject = next((index for index, column in enumerate(columns) if column.key in SUBJECTS), None)
    heads = (el("th" if column.title else "td", column.title or None, scope="col" if column.title else None,
                class_=_kind(column)) for column in columns)
    rows = (_row(tuple(row[index] for index in kept), columns, subject) for row in table.rows[:ROWS_SHOWN])
    return Markup(el("table", el("thead", el("tr", heads)), el("tbody", rows), class_=f"of-{table.key}")
                  + (omission_note(len(table.rows) - ROWS_SHOWN, "row") or ""))


def _row(row: tuple[Cell, ...], columns: Sequence[Column], subject: int | None) -> Markup:
    """Return one row; the filter matches its `data-about`."""
    about = "" if subject is None else row[subject]
    return el("tr", (_cell(cell, column) for cell, column in zip(row, columns, strict=True)),
              data_about=about if isinstance(about, str) else "")


def _cell(cell: Cell, column: Column) -> Markup:
    lines = [cell] if isinstance(cell, str) else cell
    content = (el("div", unbroken(line)) for line in lines) if len(lines) > 1 else map(unbroken, lines)
    first = lines[0] if lines else ""
    tone = count_tone(column.key, int(first)) if column.numeric and first.isdecimal() else text_tone(first)
    classes = " ".join(word for word in (_kind(column), tone) if word)
    return el("td", content, class_=classes or None, data_label=column.title if first else None)


def _kind(column: Column) -> str | None:
    if column.key == "sign" or column.key in UNBROKEN:
        return "sign" if column.key == "sign" else "code"
    return "number" if column.numeric else "name" if column.name else None


def _totals(report: Report) -> Markup:
    """Return the counts; each is also in `data-total` and `data-count`. Uninteresting zeros are folded."""
    refused = report.exit_code == REFUSED
    shown = [_total(one, refused=refused) for one in report.totals if one.shown]
    folded = [_total(one, refused=refused) for one in report.totals if not one.shown]
    summary = f"{count_of(len(folded), 'count')} {'is' if len(folded) == 1 else 'are'} 0"
    zeros = fold(summary, el("dl", folded, class_="totals")) if folded else None
    return el("div", el("dl", shown, class_="totals"), zeros, class_="counts")


def _total(total: Total, *, refused: bool) -> Markup:
    tone: str = count_tone(total.key, total.count)
    if total.key == "policy" and total.count:
        tone = "bad" if refused else "warn"  # --force may override all violations
    return el("div", el("dt", total.label), el("dd", str(total.count)), class_=f"total {tone}".strip(),
              data_total=total.key, data_count=total.count)


def fold(summary: str, *content: Content, anchor: str | None = None, same: bool = False) -> Markup:
    """Return folded content; `same` = it shows only what does not change."""
    return el("details", el("summary", summary), *content, id=anchor, class_="fold", data_same=same)


def omission_note(count: int, noun: str, where: str = "--format json has everything") -> Markup | None:
    """Return a note on how many are not shown and where to find them; None if all are shown."""
    return el("p", f"and {count_of(count, f'more {noun}')}; {where}", class_="soft") if count > 0 else None


def _filter_bar(*, nodes: bool, same: bool) -> Markup:
    """Return the filter bar, hidden until the script shows it: without the script it has no effect.

    `nodes` = the page has a map; `same` = some part of the page shows only what does not change.
    """
    label = "Filter by model or node" if nodes else "Filter"
    toggle = el("label", el("input", type="checkbox", id="only"), " only what changes") if same else None
    field = el("input", id="filter", type="text", role="combobox", placeholder=label, autocomplete="off",
               spellcheck="false", aria_label=label, aria_expanded="false", aria_controls="found",
               aria_autocomplete="list", aria_keyshortcuts="/")
    found = el("ul", id="found", role="listbox", aria_label="Names", hidden=True)
    return el("form", el("div", field, el("kbd", "/", aria_hidden="true"), found, class_="box"),
              el("p", id="matches", role="status"), toggle, id="bar", role="search", aria_label="Filter", hidden=True)


SHORT_NAME = 20
"""The longest name, in characters, that is kept on one line: it fits on a phone."""

_NAME = re.compile(r"\w+(?:[-/.[\]]+\w+)+")
_JOINT = re.compile(r"[/.](?=\w)")
_MOMENT = re.compile(r"(?<![\w/.:-])(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)(?![\w/-])")
STYLES = ("base.css", "parts.css", "map.css")
SCRIPTS = ("times.js", "names.js", "filter.js", "search.js", "cells.js")
REFRESH_S = 30
_VOID = frozenset({"br", "input", "meta"})


class Markup(str):
    """HTML that was built here and is safe to put into a page."""

    __slots__ = ()


Content = str | Iterable[str] | None
Attribute = str | int | bool | None


def text(value: str) -> Markup:
    """Return `value` as HTML text, also safe between double quotes; `Markup` stays as it is."""
    return value if isinstance(value, Markup) else Markup(escape(visible(value)))


def el(name: str, /, *content: Content, **attributes: Attribute) -> Markup:
    """Return an element. Content is text, markup, an iterable of these, or None for nothing.

    `class_` becomes `class`, `data_total` `data-total`. True gives a bare name; None and False omit the attribute.
    """
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Markup(opening if name in _VOID else f"{opening}{many(*content)}</{name}>")


def many(*content: Content) -> Markup:
    """Return content without an enclosing element."""
    texts = (part if not isinstance(part, str) else (part,) for part in content if part is not None)
    return Markup("".join(text(one) for parts in texts for one in parts))


def dated(value: str) -> Markup:
    """Return text with its points in time as `<time>`; the script shows them relative to the reader's clock."""
    return _with_moments(value, text)


def unbroken(value: str) -> Markup:
    """Return dated text in which short names do not wrap, and long ones wrap only after a `/` or a dot."""
    return _with_moments(value, lambda part: Markup(_NAME.sub(_unbroken_name, text(part))))


def _with_moments(value: str, words: Callable[[str], Markup]) -> Markup:
    parts = _MOMENT.split(value)  # every second part is a point in time
    return many(el("time", el("span", part), datetime=part, title=part) if number % 2 else words(part)
                for number, part in enumerate(parts))


def _unbroken_name(name: re.Match[str]) -> str:
    if len(name[0]) <= SHORT_NAME:
        return el("span", Markup(name[0]), class_="whole") if "-" in name[0] else name[0]
    return _JOINT.sub(r"\g<0><wbr>", name[0])


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'


def html_page(title: str, content: Markup, *, rules: str = "", live: str | None = None) -> str:
    """Return an HTML document. `rules` are style rules for this page only, such as the colors of its models.

    `live` is the digest of a page that its server updates: the page listens to /events, or without scripts reloads
    every REFRESH_S seconds.
    """
    style = "".join(_asset(name) for name in STYLES) + rules
    scripts = SCRIPTS if live is None else (*SCRIPTS, "live.js")
    script = f"(() => {{\n{''.join(_asset(name) for name in scripts)}}})();"
    policy = (f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
              + ("connect-src 'self'; " if live else "") + "base-uri 'none'; form-action 'none'")
    refresh = el("noscript", el("meta", http_equiv="refresh", content=str(REFRESH_S))) if live else None
    head = many(
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        refresh,
        el("title", title),
        el("style", Markup(style)))
    body = el("body", content, el("script", Markup(script)), data_live=live)
    return f"<!doctype html>\n{el('html', el('head', head), body, lang='en')}\n"


def _hash(source: str) -> str:
    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"


@cache
def _asset(name: str) -> str:
    return files("fleetctl.render.page").joinpath("assets").joinpath(name).read_text(encoding="utf-8")
