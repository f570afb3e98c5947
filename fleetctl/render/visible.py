"""Makes text from files, clusters and engines safe to show: escapes terminal commands and hidden characters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_COMMAND = re.compile(r"^([^!-~\n]*):(?=[^ -~\n]*:)|#(?=[^ -~\n]*#)", re.MULTILINE)
"""Where a CI runner could see a command: `::error::` at the start of a line, `##[error]` and `##vso[` anywhere.
Runners compare text by the rules of a language and may ignore non-ASCII characters between the two signs."""

_HIDDEN = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What JSON may contain as it is: commands to a terminal, other line ends, and marks that reverse the reading order."""


def visible(text: str) -> str:
    """Return `text` with terminal commands and invisible characters as escapes, such as `\\x1b`.

    The result is one line. Newlines, right-to-left overrides, zero-width characters and lone surrogates are escaped.
    """
    return text if text.isprintable() else "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def cut(text: str, limit: int) -> str:
    """Return the text, or its first `limit` characters and how many more there are."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text) - limit} more characters)"


def cut_visible(text: str, limit: int = 2_000) -> str:
    """Return text with hidden characters and commands escaped, cut for formats that show only a few lines."""
    return cut(visible(text), limit)


def visible_lines(text: str) -> str:
    """Like `visible`, but keeps line ends."""
    return "\n".join(visible(line) for line in text.split("\n"))


def visible_log(text: str) -> str:
    """Like `visible_lines`, for the output of a program: also keeps tabs, and accepts both kinds of line ends."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in lines)


def inert(text: str) -> str:
    """Return lines in which no CI runner finds a command, by escaping one of its two signs.

    The escapes `\\u003a` and `\\u0023` leave the meaning of a JSON document unchanged.
    """
    return _COMMAND.sub(lambda found: f"{found[1]}\\u003a" if found[1] is not None else "\\u0023", text)


def visible_json(text: str) -> str:
    """Return a JSON document with hidden characters as escapes, such as `\\u009b`; its meaning stays the same."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_trimmed(renderable: RenderableType, console: Console) -> None:
    """Print `renderable` without rich's padding at line ends, so that output is easy to copy and compare."""
    from rich.segment import Segment, Segments  # only what prints needs it

    printed = []
    for line in console.render_lines(renderable, pad=False):
        while line and not line[-1].text.strip(" "):
            line.pop()
        if line:
            line[-1] = Segment(line[-1].text.rstrip(" "), line[-1].style)
        printed += [*line, Segment.line()]
    console.print(Segments(printed), end="", crop=False)
