"""The shell of every page: one HTML file with its own style and script, and a policy that allows nothing else.

The policy lists style and script by their hashes, so the browser does not run injected text.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from fleetctl.render.page.markup import Markup, el, many

STYLES = ("base.css", "parts.css", "map.css")
SCRIPTS = ("names.js", "filter.js", "search.js", "cells.js")
LIVE = "live.js"
REFRESH_S = 30


def html_page(title: str, content: Markup, *, rules: str = "", live: str | None = None) -> str:
    """Return an HTML document. `rules` are style rules for this page only, such as the colors of its models.

    `live` is the digest of a page that its server updates: the page listens to /events, or without scripts reloads
    every REFRESH_S seconds.
    """
    style = "".join(_asset(name) for name in STYLES) + rules
    scripts = SCRIPTS if live is None else (*SCRIPTS, LIVE)
    script = f"(() => {{\n{''.join(_asset(name) for name in scripts)}}})();"
    refresh = el("noscript", el("meta", http_equiv="refresh", content=str(REFRESH_S))) if live else None
    head = many(
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(style, script, live=bool(live))),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        refresh,
        el("title", title),
        el("style", Markup(style)))
    body = el("body", content, el("script", Markup(script)), data_live=live)
    return f"<!doctype html>\n{el('html', el('head', head), body, lang='en')}\n"


def _policy(style: str, script: str, *, live: bool) -> str:
    connect = "connect-src 'self'; " if live else ""
    return (f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; {connect}"
            "base-uri 'none'; form-action 'none'")


def _hash(source: str) -> str:
    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"


@cache
def _asset(name: str) -> str:
    return files("fleetctl.render.page").joinpath("assets").joinpath(name).read_text(encoding="utf-8")
