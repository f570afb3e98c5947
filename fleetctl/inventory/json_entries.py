"""The entries of one JSON object or list inside a large document, one after another, while the document comes in.

Only one entry is in memory at a time. `result: false` on the way to it, as Ray's dashboard says that it failed, is an
error.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, MutableMapping, Sequence

MAX_VALUES = 16_000_000
"""Values in one JSON document: Python keeps up to a hundred bytes for each, however short its text is."""

_SPACE = re.compile(r"[ \t\n\r]*")
_CLOSING = {"{": "}", "[": "]"}
_ENDS, _FOLLOW = frozenset('"}]'), frozenset(",}] \t\n\r")
_CUT_SHORT = 16
"""An error within as many characters of the end may come from half a literal or escape, whose rest is on its way."""


class NotTheAnswer(ValueError):
    """Whole JSON, as far as it was read, but not what was asked for. The message goes on from the name of the path."""


def entries_within(parts: Iterator[bytes], within: Sequence[str], opening: str, entry_chars: int,
                   beside: MutableMapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield keys and values of the object (`opening` "{") or list ("[", its keys are "") at the keys `within`.

    All other values on the way there are put into `beside`. Raises ValueError for a text that is not JSON, is cut off
    or has a value of more than `entry_chars`, NotTheAnswer where there is no such object or list.
    """
    text = _Text(parts, entry_chars)
    yield from _within(text, tuple(within), opening, beside)
    text.end()


def _within(text: _Text, within: tuple[str, ...], opening: str,
            beside: MutableMapping[str, object]) -> Iterator[tuple[str, object]]:
    if not within:
        for key in text.keys(opening):
            yield key, text.value()
        return
    found = failed = False
    for key in text.keys("{"):
        if key != within[0] or failed:
            beside[key] = text.value()
            failed |= key == "result" and beside[key] is False
        elif found:
            raise ValueError(f"it has {key} twice")
        else:
            found = True
            yield from _within(text, within[1:], opening, beside)
    if failed:
        raise NotTheAnswer(f"failed in the cluster: {beside.get('msg') or 'no reason given'}")
    if not found:
        raise NotTheAnswer(f"answered without {within[0]}")


def few_values(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same parts; raises ValueError once they hold more values than may be kept."""
    values = 0
    for part in parts:
        values += count_values(part)
        if values > MAX_VALUES:
            raise ValueError("too many values")
        yield part


def count_values(data: bytes) -> int:
    """Return how many values JSON text holds at most."""
    return sum(map(data.count, (b",", b"[", b"{")))


class _Text:
    """The document as text, as much of it as is needed at a time."""

    def __init__(self, parts: Iterator[bytes], entry_chars: int) -> None:
        self._parts = parts
        self._entry_chars = entry_chars
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder()
        self._read = ""
        self._at = 0

    def keys(self, opening: str) -> Iterator[str]:
        """Yield the keys of the object, or "" for each item of the list, that begins here.

        The caller reads each value before it asks for the next key.
        """
        self._expect(opening)
        if self._next_sign() == _CLOSING[opening]:
            self._at += 1
            return
        while True:
            yield self._key() if opening == "{" else ""
            sign = self._next_sign()
            self._at += 1
            if sign == _CLOSING[opening]:
                return
            if sign != ",":
                raise ValueError(f"it does not go on after an entry of {opening}{_CLOSING[opening]}")

    def _key(self) -> str:
        if self._next_sign() != '"':
            raise ValueError("a key that is not text")
        key = str(self.value())
        self._expect(":")
        return key

    def value(self) -> object:
        """Return the value that begins here."""
        self._next_sign()
        while True:
            try:
                value, end = self._json.raw_decode(self._read, self._at)
            except RecursionError:
                raise ValueError("nested too deep") from None
            except json.JSONDecodeError as error:
                if error.pos < len(self._read) - _CUT_SHORT and not error.msg.startswith("Unterminated string"):
                    raise ValueError(error.msg) from None
                self._need_more()
                continue
            if self._read[end - 1] in _ENDS or self._read[end:end + 1] in _FOLLOW or end < len(self._read) - _CUT_SHORT:
                self._at = end
                return value
            self._need_more()  # a number may go on: 1, 1., 1.5

    def end(self) -> None:
        """Read to the end, where a cut shows; raises ValueError when anything follows."""
        while not self._read[self._at:].strip(" \t\n\r"):
            self._at = len(self._read)
            if not self._more():
                return
        raise ValueError("something follows its end")

    def _expect(self, sign: str) -> None:
        if self._next_sign() != sign:
            raise ValueError(f"no {sign} where one belongs")
        self._at += 1

    def _next_sign(self) -> str:
        """Go on to the next character that is not blank, and return it."""
        while True:
            match = _SPACE.match(self._read, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._read):
                return self._read[self._at]
            self._need_more()

    def _need_more(self) -> None:
        """Read on until there is twice as much of the value, so that reading a long one again costs little."""
        wanted = max(1, 2 * (len(self._read) - self._at))
        if len(self._read) - self._at > self._entry_chars:
            raise ValueError(f"a value of more than {self._entry_chars >> 20} MiB")
        grown = False
        while len(self._read) - self._at < wanted and self._more():
            grown = True
        if not grown:
            raise ValueError("it ends too early")

    def _more(self) -> bool:
        """Append the next part and drop what was read already; False at the end."""
        part = next(self._parts, None)
        fresh = self._utf8.decode(part or b"", final=part is None)
        self._read, self._at = self._read[self._at:] + fresh, 0
        return part is not None
