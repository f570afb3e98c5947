"""Text from outside as GitHub-flavoured Markdown that stays text, in a cell, a list or a heading.

There is one way to be sure: a code span. Nothing in it is markup, a mention, a reference, a link, an emoji or a
formula, for the parser as for what forges do afterwards. So a name is a code span, and of a sentence every word that is
more than letters, a number and a full stop. Pipes are entities outside of it, because no two parsers agree on
backslashes before them.
"""

from __future__ import annotations

import re
from html import escape
from urllib.parse import quote

from fleetctl.render.visible import visible

TEXT_LIMIT = 500
"""Characters of one text; no report is read for one longer, and many would push out the rest."""

_PLAIN = re.compile(r"\(?(?:[A-Za-z]+(?:['-][A-Za-z]+)*|[0-9]+(?:\.[0-9]+)?[A-Za-z]{0,3}%?)[.,;:]?\)?[.,;:]?")
_AROUND = re.compile(r"(\(?)(.*[^.,;:)])(\)?[.,;:]?)")
_LINKED = re.compile(r"\W*(?:[0-9a-f]{7,40}|www)\W*", re.IGNORECASE)
"""A word that forges turn into a link: what may be a commit, what may be a host."""


def code(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return a name as code that shows exactly these characters, the invisible ones as escapes such as `\\x1b`."""
    return "&#124;".join(_span(part) for part in cut(visible(text), limit).split("|"))


def prose(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return a sentence in which every word that could mean something to a parser or a forge is code."""
    shown = cut(visible(text), limit)
    if shown != " ".join(shown.split()):
        return code(shown, len(shown))
    return " ".join(word if _is_plain(word) else _quoted(word) for word in shown.split(" "))


def tagged(text: str) -> str:
    """Return text for between HTML tags on one line, where nothing is Markdown."""
    shown = cut(visible(text), TEXT_LIMIT)
    return shown if all(map(_is_plain, shown.split(" "))) else f"<code>{escape(shown)}</code>"


def comment(text: str) -> str:
    """Return a hidden comment, always the same for the same text and never ended by it."""
    return f"<!-- {quote(visible(text), safe=':/')[:TEXT_LIMIT]} -->"


def cut_visible(text: str) -> str:
    """Return text for a format that shows a few lines of it, without what could be hidden or obeyed."""
    return cut(visible(text), 2_000)


def cut(text: str, limit: int) -> str:
    """Return the text, or as much of it as there is room for and by how much it is longer."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text) - limit} more characters)"


def length(text: str) -> int:
    """Return how long forges count a text to be: in UTF-16 units, which are never fewer than its characters."""
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
