"""Untrusted text as GitHub-flavored Markdown that stays text, in a cell, a list or a heading.

The only safe form is a code span: neither the parser nor a forge's post-processing finds markup, mentions, references,
links, emoji or formulas in it. So every name is a code span, and so is every word of a sentence that is more than
letters, a number and punctuation. Pipes are entities outside the span, because parsers disagree about backslashes.
"""

from __future__ import annotations

import re
from html import escape
from urllib.parse import quote

from fleetctl.render.visible import visible

TEXT_LIMIT = 500
"""The longest text, in characters; many longer ones would displace the rest of the report."""

_PLAIN = re.compile(r"\(?(?:[A-Za-z]+(?:['-][A-Za-z]+)*|[0-9]+(?:\.[0-9]+)?[A-Za-z]{0,3}%?)[.,;:]?\)?[.,;:]?")
_AROUND = re.compile(r"(\(?)(.*[^.,;:)])(\)?[.,;:]?)")
_LINKED = re.compile(r"\W*(?:[0-9a-f]{7,40}|www)\W*", re.IGNORECASE)
"""Words that forges turn into a link: a possible commit or host name."""


def code(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return a name as code that shows exactly these characters, invisible ones as escapes such as `\\x1b`."""
    return "&#124;".join(_span(part) for part in cut(visible(text), limit).split("|"))


def prose(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return a sentence in which every word that a parser or a forge could interpret is code."""
    shown = cut(visible(text), limit)
    if shown != " ".join(shown.split()):
        return code(shown, len(shown))
    return " ".join(word if _is_plain(word) else _quoted(word) for word in shown.split(" "))


def tagged(text: str) -> str:
    """Return text for use between HTML tags on one line, where Markdown does not apply."""
    shown = cut(visible(text), TEXT_LIMIT)
    return shown if all(map(_is_plain, shown.split(" "))) else f"<code>{escape(shown)}</code>"


def comment(text: str) -> str:
    """Return a hidden comment, always the same for the same text; the text cannot end it."""
    return f"<!-- {quote(visible(text), safe=':/')[:TEXT_LIMIT]} -->"


def cut_visible(text: str) -> str:
    """Return text with hidden characters and commands escaped, cut for formats that show only a few lines."""
    return cut(visible(text), 2_000)


def cut(text: str, limit: int) -> str:
    """Return the text, or its first `limit` characters and how many more there are."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text) - limit} more characters)"


def length(text: str) -> int:
    """Return the length of a text as forges count it: in UTF-16 units, at least one per character."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _is_plain(word: str) -> bool:
    return bool(_PLAIN.fullmatch(word)) and not _LINKED.fullmatch(word)


def _quoted(word: str) -> str:
    """Return a word as code, without the punctuation of the sentence around it."""
    found = _AROUND.fullmatch(word)
    before, inside, after = found.groups() if found else ("", word, "")
    return f"{before}{code(inside, len(inside))}{after}"


def _span(text: str) -> str:
    if not text:
        return ""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text[0] == "`" or text[-1] == "`" or (text[0] == text[-1] == " " and text.strip(" ")) else ""
    return f"{fence}{pad}{text}{pad}{fence}"
