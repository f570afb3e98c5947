"""Plain values as YAML in the layout of this project: small things on one line, the frame of a fleet in blocks.

Comments stand above what they are about.

Not PyYAML's or ruamel's emitter: those know neither which mappings of a fleet file stand open nor how to fold a command
line, and `fmt` keeps such choices as they are. Scalars are quoted where any YAML reader would see something else.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.documents.position import Path
from fleetctl.fleetfile.plain_text import is_text_to_all

WIDTH = 116
FOLD_FROM = 100
"""A text longer than this is folded over several lines, where it has single spaces to break at."""

_PLAIN = re.compile(r"[A-Za-z0-9_./$(-][A-Za-z0-9_./$()+=@%~<>;^-]*"
                    r"(?:(?:[:]|[ ]+)[A-Za-z0-9_./$()+=@%~<>;^-]+)*")
"""A cautious plain scalar: no quotes, brackets, commas or `#`, and no colon before a space."""
_OPEN_KEYS = frozenset({"spec", "models", "workers", "members", "nodes", "engine"})
_APART = "models"
"""The list whose items stand a blank line apart."""

Comments = Mapping[Path, Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Writer:
    """Lays out one document; `open_paths` are those that carry comments inside."""

    comments: Comments
    open_paths: frozenset[Path]

    def above(self, path: Path, indent: int) -> list[str]:
        return [line for text in self.comments.get(path, ()) for line in comment_lines(text, indent)]

    def mapping(self, value: Mapping[str, Any], path: Path, indent: int) -> list[str]:
        lines: list[str] = []
        for key, item in value.items():
            below = (*path, key)
            lines += self.above(below, indent)
            lines += self.pair(f"{' ' * indent}{scalar(key)}:", item, below, indent)
        return lines

    def pair(self, head: str, value: object, path: Path, indent: int) -> list[str]:
        """Lay out a value behind its key."""
        if self.is_short(head, value, path):
            return [f"{head} {flow(value)}"]
        if isinstance(value, Mapping):
            return [head, *self.mapping(value, path, indent + 2)]
        if isinstance(value, list):
            return [head, *self.items(value, path, indent)]
        return _text(head, str(value), indent)

    def items(self, value: Sequence[object], path: Path, indent: int) -> list[str]:
        lines: list[str] = []
        for number, item in enumerate(value):
            lines += [""] if number and path[-1] == _APART else []
            lines += self.item(item, (*path, number), indent)
        return lines

    def item(self, value: object, path: Path, indent: int) -> list[str]:
        above, dash = self.above(path, indent), f"{' ' * indent}-"
        if isinstance(value, Mapping) and value:
            body = self.mapping(value, path, indent + 2)
        elif self.is_short(dash, value, path):
            return [*above, f"{dash} {flow(value)}"]
        elif isinstance(value, list):
            body = self.items(value, path, indent + 2)
        else:
            return [*above, *_text(dash, str(value), indent)]
        first = next(number for number, line in enumerate(body) if not line.lstrip().startswith("#"))
        hoisted = [line[2:] for line in body[:first]]  # a comment above the first entry stands above the dash
        return [*above, *hoisted, f"{dash} {body[first].lstrip()}", *body[first + 1:]]

    def is_short(self, head: str, value: object, path: Path) -> bool:
        """Tell whether a value stands on the line of its head: it fits, is not of the frame, has no comments inside."""
        collection = isinstance(value, (Mapping, list))
        if collection and not value:
            return True
        if collection and (path in self.open_paths or path[-1] in _OPEN_KEYS):
            return False
        text = flow(value)
        return text is not None and (len(head) + 1 + len(text) <= WIDTH or not isinstance(value, (Mapping, list, str)))


def block(value: Mapping[str, Any], comments: Comments) -> str:
    """Return a document as text; each of `comments` stands above the value at its path."""
    inside = frozenset(path[:length] for path in comments for length in range(len(path)))
    return "\n".join(_Writer(comments, inside).mapping(value, (), 0)) + "\n"


def flow(value: object) -> str | None:
    """Return a value on one line, or None where it holds text of several lines, or text that is long."""
    if isinstance(value, Mapping):
        parts = [(scalar(key), flow(item)) for key, item in value.items()]
        return None if any(text is None for _, text in parts) else _braced(f"{key}: {text}" for key, text in parts)
    if isinstance(value, list):
        texts = [flow(item) for item in value]
        return None if any(text is None for text in texts) else f"[{', '.join(str(text) for text in texts)}]"
    if isinstance(value, str) and ("\n" in value or len(value) > FOLD_FROM):
        return None
    return scalar(value)


def scalar(value: object) -> str:
    """Return one scalar on one line: as it is where every reader takes it for this text, otherwise in quotes."""
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    return json.dumps(value)


def comment_lines(text: str, indent: int) -> list[str]:
    """Return a comment of one or more lines; what would end the comment or hide in it is written out."""
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
    margin = " " * indent
    return textwrap.wrap(shown, max(40, WIDTH), initial_indent=f"{margin}# ", subsequent_indent=f"{margin}#   ",
                         break_long_words=False, break_on_hyphens=False) or [f"{margin}#"]


def _braced(pairs: Any) -> str:  # noqa: ANN401 (an iterator of texts)
    return "{" + ", ".join(pairs) + "}"


def _is_plain(text: str) -> bool:
    a_dash = text == "-" or text.startswith("- ")  # would begin an item of a list
    return bool(_PLAIN.fullmatch(text)) and not a_dash and is_text_to_all(text)


def _quoted(text: str) -> str:
    if text.isprintable() and ('"' in text or "\\" in text):
        return "'" + text.replace("'", "''") + "'"
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)


def _text(head: str, text: str, indent: int) -> list[str]:
    """Lay out long text, or text of several lines; as a block scalar where that shows it as it is."""
    margin = " " * (indent + 2)
    lines = text.split("\n")
    if not all(line.isprintable() and line == line.rstrip() for line in lines) or lines[0][:1] in ("", " "):
        return [f"{head} {_quoted(text)}"]
    if len(lines) > 1:
        if text.endswith("\n\n"):
            return [f"{head} {_quoted(text)}"]
        chomp, body = ("|", lines[:-1]) if text.endswith("\n") else ("|-", lines)
        return [f"{head} {chomp}", *(margin + line if line else "" for line in body)]
    if "  " in text:
        return [f"{head} {_quoted(text)}"]
    folded = textwrap.wrap(text, WIDTH - len(margin), break_long_words=False, break_on_hyphens=False)
    return [f"{head} >-", *(margin + line for line in folded)]
