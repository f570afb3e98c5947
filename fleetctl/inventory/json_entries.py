"""The entries of one JSON object or list inside a large document, one after another, while the document comes in.

Only one entry is in memory at a time. `result: false` on the way to it, as Ray's dashboard says that it failed, is an
error.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import TypeVar

from fleetctl.inventory.bounds import MAX_VALUES

Entry = TypeVar("Entry")

_SPACE = re.compile(r"[ \t\n\r]*")
_ENDS, _FOLLOW = frozenset('"}]'), frozenset(",}] \t\n\r")
_CUT_SHORT = 16
"""An error within as many characters of the end may come of what is still on its way: half a literal or escape."""


class NotTheAnswer(ValueError):
    """Whole JSON, as far as it was read, but not what was asked for. The message goes on from the name of the path."""


def entries_within(parts: Iterator[bytes], within: Sequence[str], entry_chars: int) -> Iterator[tuple[str, object]]:
    """Yield the keys and values of the object at the keys `within`.

    Raises ValueError for what is no JSON, is cut off or has a value of more than `entry_chars`, NotTheAnswer for what
    has no such object.
    """
    text = _Text(parts, entry_chars)
    yield from _within(text, tuple(within), _Text.entries, {})
    text.end()


def items_within(parts: Iterator[bytes], within: Sequence[str], entry_chars: int,
                 beside: MutableMapping[str, object]) -> Iterator[object]:
    """Yield the values of the list at the keys `within`; raises as `entries_within` does.

    What stands beside the list, and beside what it is in, is put into `beside`.
    """
    text = _Text(parts, entry_chars)
    yield from _within(text, tuple(within), _Text.items, beside)
    text.end()


def _within(text: _Text, within: tuple[str, ...], take: Callable[[_Text], Iterator[Entry]],
            beside: MutableMapping[str, object]) -> Iterator[Entry]:
    """Yield what `take` does where `within` leads to from here."""
    if not within:
        yield from take(text)
        return
    found = failed = False
    for key in text.keys_of_object():
        if key != within[0] or failed:
            beside[key] = text.value()
            failed |= key == "result" and beside[key] is False
        elif found:
            raise ValueError(f"it has {key} twice")
        else:
            found = True
            yield from _within(text, within[1:], take, beside)
    if failed:
        raise NotTheAnswer(f"failed in the cluster: {beside.get('msg') or 'no reason given'}")
    if not found:
        raise NotTheAnswer(f"answered without {within[0]}")


def few_values(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same parts; raises ValueError once they hold more values than may be kept."""
    values = 0
    for part in parts:
        values += sum(map(part.count, (b",", b"[", b"{")))
        if values > MAX_VALUES:
            raise ValueError("too many values")
        yield part


class _Text:
    """The document as text, as much of it as is needed at a time."""

    def __init__(self, parts: Iterator[bytes], entry_chars: int) -> None:
        self._parts = parts
        self._entry_chars = entry_chars
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder()
        self._read = ""
        self._at = 0

    def keys_of_object(self) -> Iterator[str]:
        """Yield the keys of the object that begins here; whoever asks for the next has read the value of the last."""
        self._expect("{")
        if self._next_sign() == "}":
            self._at += 1
            return
        while True:
            if self._next_sign() != '"':
                raise ValueError("a key that is no text")
            key = str(self.value())
            self._expect(":")
            yield key
            sign = self._next_sign()
            self._at += 1
            if sign == "}":
                return
            if sign != ",":
                raise ValueError("an object that does not go on as one")

    def entries(self) -> Iterator[tuple[str, object]]:
        """Yield the keys and values of the object that begins here."""
        return ((key, self.value()) for key in self.keys_of_object())

    def items(self) -> Iterator[object]:
        """Yield the values of the list that begins here."""
        self._expect("[")
        if self._next_sign() == "]":
            self._at += 1
            return
        while True:
            yield self.value()
            sign = self._next_sign()
            self._at += 1
            if sign == "]":
                return
            if sign != ",":
                raise ValueError("a list that does not go on as one")

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
        """Raise ValueError when anything follows; reads to the end, where it shows whether it was all of it."""
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
        """Go on to the next character that is no blank, and return it."""
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
