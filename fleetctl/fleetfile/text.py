"""The text of one fleet file: decoding, and lines and columns for character offsets."""

from __future__ import annotations

import re
from bisect import bisect_right
from codecs import BOM_UTF8
from dataclasses import dataclass, field

from fleetctl.documents.mask import secrets_in
from fleetctl.documents.position import Path, path_text
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.problem import Problem

_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_ENVIRONMENT = re.compile(r"\benv\b")
_PUNCTUATION = re.compile(r"[\[\],]|\"|'")
MAX_SOURCE_LINE = 200
MAX_LINES = 500_000


@dataclass(frozen=True, slots=True)
class SourceText:
    """One file as text. Offsets count characters from 0, lines and columns from 1."""

    file: str
    text: str
    line_starts: tuple[int, ...] = field(repr=False)

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of a character."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return one line without its newline."""
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start:end if end >= 0 else len(self.text)].rstrip("\r")

    def shown_line(self, number: int) -> str | None:
        """Return one line without its newline; None if it is too long to be shown."""
        start = self.line_starts[number - 1]
        # many problems may lie on one line of megabytes
        line = self.text[start:start + MAX_SOURCE_LINE + 2].partition("\n")[0].rstrip("\r")
        return line if len(line) <= MAX_SOURCE_LINE else None

    def problem(
        self, code: str, offset: int, message: str, *, path: Path = (), allowed: str | None = None,
        suggestion: str | None = None, secret: bool = False,
    ) -> Problem:
        """Make a problem at a character. The source line is left out if it is `secret`, has one, or is of an `env`."""
        line, column = self.position(offset)
        shown = self.shown_line(line)
        if shown is not None and (secret or _ENVIRONMENT.search(shown) or secrets_in(_PUNCTUATION.sub(" ", shown))):
            shown = None
        return Problem(code, message, self.file, line, column, path_text(path), allowed, suggestion, shown)


def decode(source: SourceBytes) -> SourceText:
    """Return the file as text without its byte order mark; raises FleetFileError if it is not text."""
    data = source.data.removeprefix(BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        offset = error.start + len(source.data) - len(data)
        raise FleetFileError([_not_utf8(source.file, data, error.start, offset=offset)]) from None
    if text.count("\n") >= MAX_LINES:
        raise FleetFileError([Problem("FL014", f"more than {MAX_LINES} lines", source.file,
                                      allowed="split the fleet into several files")])
    starts = (0, *(match.end() for match in re.finditer("\n", text)))
    result = SourceText(source.file, text, starts)
    control = _CONTROL.search(text)
    if control is not None:
        message = f"the control character U+{ord(control[0]):04X} is not allowed in YAML"
        allowed = 'an escape in double quotes, such as "\\u0007"'
        raise FleetFileError([result.problem("FL006", control.start(), message, secret=True, allowed=allowed)])
    return result


def _not_utf8(file: str, data: bytes, at: int, *, offset: int) -> Problem:
    before = data[:at]
    line_start = before.rfind(b"\n") + 1
    column = len(before[line_start:].decode("utf-8", "replace")) + 1
    utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    message = "this is UTF-16, not UTF-8" if utf16 else f"byte 0x{data[at]:02x} at offset {offset} is not UTF-8"
    return Problem("FL005", message, file, before.count(b"\n") + 1, column, allowed="save the file as UTF-8")
