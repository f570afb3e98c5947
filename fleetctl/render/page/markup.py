"""HTML as values: text is escaped unless it is `Markup`, so that no text from a fleet or a cluster becomes an element.

Invisible characters (control characters, right-to-left overrides) are escaped first, as in every format.

Every page is one HTML file with its own style and script, and a policy that allows nothing else. The policy lists both
by their hashes, so the browser does not run injected text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

from fleetctl.render.visible import visible

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
    return Markup("".join(_inside(part) for part in content if part is not None))


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


def _inside(part: str | Iterable[str]) -> str:
    return text(part) if isinstance(part, str) else "".join(text(one) for one in part)


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
