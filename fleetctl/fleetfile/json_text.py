"""Reads a fleet file that is JSON as the events of the YAML parser.

YAML takes most JSON. It refuses an escaped pair for one character beyond U+FFFF, a key of more than 1024 characters and
some characters as themselves, and it takes others, such as U+2028, for the end of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from json import decoder
from typing import Any

import yaml

from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.sources import SourceText

_Event: Any = vars(yaml)
"""The events, whose stubs lack the types of their arguments."""
_SCAN_TEXT: Any = vars(decoder)["scanstring"]
_TOKEN = re.compile(r"[\[{\]}\"]|[^\s\[{\]},:\"]+")
_ESCAPE = re.compile(r"\\u(d[89ab]..)\\ud[c-f]..|\\u(d[89a-f]..|0000)|\\.", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Mark:
    """The offset of an event."""

    index: int


def json_events(source: SourceText) -> Iterator[Any]:
    """Yield the events of a text that `is_json`; raises FleetFileError for an escape of NUL or of half a character."""
    text, at = source.text, 0
    yield _Event["DocumentStartEvent"](_Mark(0), _Mark(0))
    while token := _TOKEN.search(text, at):
        start, word, at = token.start(), token[0], token.end()
        mark = _Mark(start)
        if word == '"':
            value, at = _SCAN_TEXT(text, at)
            if "\0" in value or not value.isascii():
                _check_escapes(source, start, at)
            yield _Event["ScalarEvent"](None, None, (False, True), value, mark, _Mark(at), style='"')
        elif word in "{[":
            kind = "MappingStartEvent" if word == "{" else "SequenceStartEvent"
            yield _Event[kind](None, None, True, mark, _Mark(at), flow_style=True)
        elif word in "}]":
            yield _Event["MappingEndEvent" if word == "}" else "SequenceEndEvent"](mark, _Mark(at))
        else:
            yield _Event["ScalarEvent"](None, None, (True, False), word, mark, _Mark(at))


def _check_escapes(source: SourceText, start: int, end: int) -> None:
    for escape in _ESCAPE.finditer(source.text, start, end):
        if half := escape[2]:
            what = "a NUL character, which no text may have" if half == "0000" else (
                "half of a character: JSON writes one beyond U+FFFF as two such escapes")
            raise FleetFileError([source.problem("FL006", escape.start(), f"{escape[0]} is {what}", secret=True)])
