"""Text from files, clusters and engines made safe to show: what would move a cursor or hide is written out instead."""

from __future__ import annotations


def visible(text: str) -> str:
    """Return `text` with what a terminal would obey, or a reader could not see, as an escape such as `\\x1b`.

    Newlines too: the result is one line. Right-to-left overrides, zero-width and unpaired surrogates are written out.
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else _escape(char) for char in text)


def visible_lines(text: str) -> str:
    """Like `visible`, but keeps line ends."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
