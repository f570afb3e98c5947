"""`fmt`: one layout for all fleet files. Comments stay with their entry, and the meaning never changes.

Not a ruamel round trip: ruamel ties a comment to the key before it, so sorting the keys would move the wrong comments,
and re-indenting leaves comments behind. Here scalars and flow collections are kept character by character. The result
is checked against the comments counted by the YAML scanner, which shares no code with the layout reader.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from yaml import cyaml

from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.compose import Composed, compose
from fleetctl.fleetfile.layout import UnknownLayoutError
from fleetctl.fleetfile.read_layout import read_layout
from fleetctl.fleetfile.sources import SourceBytes, read_sources
from fleetctl.fleetfile.text import SourceText, decode
from fleetctl.fleetfile.write_layout import write_layout
from fleetctl.problem import Problem

_SCANNER: Any = vars(cyaml)["CParser"]
_COMMENT = re.compile(r"#[^\n]*")
_AFTER_HEADER = re.compile(r"[^\n]*?[ \t](#[^\n]*)")


@dataclass(frozen=True, slots=True)
class Formatted:
    """A fleet file before and after; `changed` = the bytes differ."""

    file: str
    before: str
    after: str
    changed: bool


def format_sources(
    sources: Sequence[str], *, stdin: Callable[[], bytes] | None = None
) -> tuple[list[Formatted], list[Problem]]:
    """Return every valid file of `sources` in the layout of `fmt`, and the problems of the others."""
    read, problems = read_sources(sources, stdin)
    formatted = []
    for source in read:
        try:
            formatted.append(format_source(source))
        except FleetFileError as error:
            problems.extend(error.problems)
    return formatted, problems


def format_source(source: SourceBytes) -> Formatted:
    """Return a fleet file in the layout of `fmt`; raises FleetFileError for a broken file or an unknown layout."""
    text = decode(source)
    composed = compose(text)
    if composed.problems:
        raise FleetFileError(sorted(composed.problems, key=lambda problem: (problem.line, problem.column)))
    after = _formatted(text, composed)
    return Formatted(source.file, text.text, after, changed=after.encode() != source.data)


def _formatted(text: SourceText, composed: Composed) -> str:
    unix = text.text.replace("\r\n", "\n").replace("\r", "\n")
    if not unix.strip(" \n"):
        return ""
    meaning = _meaning(composed)
    try:
        comments = count_comments(unix)
        # an anchor may have to stay above its alias, so the second attempt keeps the order of keys
        for sort in (True, False):
            after = write_layout(read_layout(unix), sort=sort)
            if _keeps_all(after, meaning, comments):
                return after
    except UnknownLayoutError as unknown:
        offset = min(unknown.offset, len(text.text))
        raise FleetFileError([_refusal(text, offset)]) from None
    raise FleetFileError([_refusal(text, 0)])


def _keeps_all(after: str, meaning: list[str], comments: Counter[str]) -> bool:
    composed = compose(SourceText("", after, (0,)))
    return not composed.problems and _meaning(composed) == meaning and count_comments(after) == comments


def _meaning(composed: Composed) -> list[str]:
    # true, 1 and 1.0 differ as JSON text, but are equal in Python
    return [json.dumps(document.value, sort_keys=True) for document in composed.documents]


def _refusal(text: SourceText, offset: int) -> Problem:
    return text.problem("FL017", offset, "fmt cannot format this safely; nothing was changed",
                        allowed="plain block mappings and lists, without directives and `? key`")


def count_comments(text: str) -> Counter[str]:
    """Count each comment of a valid YAML text, including those inside brackets and after `|`."""
    found: Counter[str] = Counter()
    end = 0
    tokens: Any = yaml.scan(text, Loader=_SCANNER)
    for token in tokens:
        start = token.start_mark.index
        found.update(comment.rstrip() for comment in _COMMENT.findall(text, end, start))
        end = token.end_mark.index
        if isinstance(token, yaml.ScalarToken) and token.style in ("|", ">"):
            after_header = _AFTER_HEADER.match(text, start, end)
            found.update([after_header[1].rstrip()] if after_header else [])
    return found
