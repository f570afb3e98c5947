"""Text from files, clusters and engines made safe to show: terminal commands and hidden characters are written out."""

from __future__ import annotations

import re

_COMMAND = re.compile(r"^([^!-~\n]*):(?=[^ -~\n]*:)|#(?=[^ -~\n]*#)", re.MULTILINE)
"""Where a runner of CI could begin to read a command: `::error::` at the beginning of a line, `##[error]` and `##vso[`
anywhere. It compares text by the rules of a language, so it may overlook what is no ASCII between the two signs."""


def visible(text: str) -> str:
    """Return `text` with terminal commands and invisible characters as escapes, such as `\\x1b`.

    Newlines too: the result is one line. Right-to-left overrides, zero-width and unpaired surrogates are written out.
    """
    return text if text.isprintable() else "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def visible_lines(text: str) -> str:
    """Like `visible`, but keeps line ends."""
    return "\n".join(visible(line) for line in text.split("\n"))


def visible_log(text: str) -> str:
    """Like `visible_lines`, for the output of a program: keeps tabs, too, and takes both kinds of line ends."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in lines)


def inert(text: str) -> str:
    """Return lines in which no runner of CI finds a command: one of its two signs is written as an escape.

    As `\\u0023`, which is the same sign in JSON: a document of that kind means what it did before.
    """
    return _COMMAND.sub(lambda found: f"{found[1]}\\u003a" if found[1] is not None else "\\u0023", text)
