"""JSON of others: values by their expected type, where one of another type counts as absent; and the entries of an
object or list inside a large document, read one by one as it arrives, so that only one is in memory at a time.

`result: false` on the path to the entries, with which Ray's dashboard reports a failure, is an error.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleetctl.documents.base import Moment, moment_at

_MOMENT = TypeAdapter(Moment)


def text_of(value: object) -> str | None:
    """Return non-empty text, else None."""
    return value if isinstance(value, str) and value else None


def object_of(value: object) -> Mapping[str, Any]:
    """Return a JSON object, else an empty object."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """Return a JSON list, else an empty list."""
    return value if isinstance(value, list) else []


def texts_of(value: object) -> list[str]:
    """Return the strings in a JSON list."""
    return [text for text in list_of(value) if isinstance(text, str)]


def moment_of(value: object) -> str | None:
    """Return a moment in RFC 3339, else None."""
    try:
        return _MOMENT.validate_python(value)
    except ValidationError:
        return None


def moment_of_ms(value: object) -> str | None:
    """Return the moment of a time in milliseconds since the epoch; None if it is 0, which means unknown."""
    ms = value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
    try:
        return moment_at(ms / 1000) if ms > 0 else None
    except (OverflowError, ValueError):  # out of the range of dates
        return None


def whole_of(value: object) -> int | None:
    """Return a non-negative integer of 63 bits, else None; JSON's `true` is not a number."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


MAX_VALUES = 16_000_000
"""The most values in one JSON document: Python needs up to a hundred bytes for each, however short its text is."""

_SPACE = re.compile(r"[ \t\n\r]*")
_MAY_BE_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_HEX = "[0-9a-fA-F]{2}"
_ESCAPE = re.compile(rf"\\(?:u[dD][89abAB]{_HEX}\\u[dD][c-fC-F]{_HEX}|(u[dD][89a-fA-F]{_HEX})|.)", re.DOTALL)
"""An escape in JSON: a surrogate pair, half of one (in the group), or any other."""
_CLOSING = {"{": "}", "[": "]"}
_ENDS, _FOLLOW = frozenset('"}]'), frozenset(",}] \t\n\r")
_LOOKAHEAD = 16
"""An error within this many characters of the end may come from a partial literal or escape."""


class NotTheAnswer(ValueError):
    """Valid JSON so far, but without the requested data. The message continues a sentence that begins with the path."""


def entries_within(parts: Iterator[bytes], within: Sequence[str], opening: str, entry_chars: int,
                   siblings: MutableMapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield keys and values of the object (`opening` "{") or list ("[", its keys are "") at the keys `within`.

    All other values on the path go into `siblings`. Raises ValueError for text that is not JSON, is truncated or has a
    value of more than `entry_chars`, and NotTheAnswer if there is no such object or list.
    """
    text = _Text(parts, entry_chars)
    yield from _within(text, tuple(within), opening, siblings)
    text.end()


def _within(text: _Text, within: tuple[str, ...], opening: str,
            siblings: MutableMapping[str, object]) -> Iterator[tuple[str, object]]:
    if not within:
        for key in text.keys(opening):
            yield key, text.value()
        return
    is_there = failed = False
    for key in text.keys("{"):
        if key != within[0] or failed:
            siblings[key] = text.value()
            failed |= key == "result" and siblings[key] is False
        elif is_there:
            raise ValueError(f"it has {key} twice")
        else:
            is_there = True
            yield from _within(text, within[1:], opening, siblings)
    if failed:
        raise NotTheAnswer(f"failed in the cluster: {siblings.get('msg') or 'no reason given'}")
    if not is_there:
        raise NotTheAnswer(f"answered without {within[0]}")


def limit_values(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same parts; raises ValueError once they contain more than MAX_VALUES."""
    values = 0
    for part in parts:
        values += count_values(part)
        if values > MAX_VALUES:
            raise ValueError("too many values")
        yield part


def count_values(data: bytes) -> int:
    """Return an upper bound of the number of values in JSON text."""
    return sum(map(data.count, (b",", b"[", b"{")))


def parse_text(text: str) -> Any:  # noqa: ANN401  any JSON value
    """Return the value in JSON text, its strings without half pairs; raises ValueError, also if it nests too deep."""
    try:
        return json.loads(without_half_pairs(text))
    except RecursionError:
        raise ValueError("nested too deep") from None


def without_half_pairs(text: str) -> str:
    """Return JSON text in which each half of a surrogate pair is written out, since no document can hold it."""
    if _MAY_BE_HALF.search(text) is None:
        return text
    return _ESCAPE.sub(lambda found: f"\\{found[0]}" if found[1] else found[0], text)


class _Text:
    """The document as text, read only as far as needed."""

    def __init__(self, parts: Iterator[bytes], entry_chars: int) -> None:
        self._parts = parts
        self._entry_chars = entry_chars
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder()
        self._read = ""
        self._at = 0

    def keys(self, opening: str) -> Iterator[str]:
        """Yield the keys of the object that begins here, or "" for each item of the list.

        The caller reads each value before it takes the next key.
        """
        self._expect(opening)
        if self._next_char() == _CLOSING[opening]:
            self._at += 1
            return
        while True:
            yield self._key() if opening == "{" else ""
            char = self._next_char()
            self._at += 1
            if char == _CLOSING[opening]:
                return
            if char != ",":
                raise ValueError(f"no comma after an entry of {opening}{_CLOSING[opening]}")

    def _key(self) -> str:
        if self._next_char() != '"':
            raise ValueError("a key that is not a string")
        key = str(self.value())
        self._expect(":")
        return key

    def value(self) -> object:
        """Return the value that begins here."""
        self._next_char()
        while True:
            try:
                value, end = self._json.raw_decode(self._read, self._at)
            except RecursionError:
                raise ValueError("nested too deep") from None
            except json.JSONDecodeError as error:
                if error.pos < len(self._read) - _LOOKAHEAD and not error.msg.startswith("Unterminated string"):
                    raise ValueError(error.msg) from None
                self._need_more()
                continue
            if self._read[end - 1] in _ENDS or self._read[end:end + 1] in _FOLLOW or end < len(self._read) - _LOOKAHEAD:
                begin, self._at = self._at, end
                return parse_text(self._read[begin:end]) if _MAY_BE_HALF.search(self._read, begin, end) else value
            self._need_more()  # a number may continue: 1, 1., 1.5

    def end(self) -> None:
        """Read to the end, which detects truncation; raises ValueError when anything follows."""
        while not self._read[self._at:].strip(" \t\n\r"):
            self._at = len(self._read)
            if not self._more():
                return
        raise ValueError("text after its end")

    def _expect(self, char: str) -> None:
        if self._next_char() != char:
            raise ValueError(f"expected {char}")
        self._at += 1

    def _next_char(self) -> str:
        """Advance to the next character that is not whitespace, and return it."""
        while True:
            match = _SPACE.match(self._read, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._read):
                return self._read[self._at]
            self._need_more()

    def _need_more(self) -> None:
        """Read until twice as much of the value is there, so that parsing a long value again stays cheap."""
        wanted = max(1, 2 * (len(self._read) - self._at))
        if len(self._read) - self._at > self._entry_chars:
            raise ValueError(f"a value of more than {self._entry_chars >> 20} MiB")
        grown = False
        while len(self._read) - self._at < wanted and self._more():
            grown = True
        if not grown:
            raise ValueError("unexpected end")

    def _more(self) -> bool:
        """Append the next part and drop the text already read; False at the end."""
        part = next(self._parts, None)
        added = self._utf8.decode(part or b"", final=part is None)
        self._read, self._at = self._read[self._at:] + added, 0
        return part is not None
