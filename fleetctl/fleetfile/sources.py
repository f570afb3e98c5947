"""Reads fleet files: files, folders of *.yaml and *.yml, standard input; their bytes, and their text with positions.

Knows no YAML.
"""

from __future__ import annotations

import errno
import json
import posixpath
import re
from bisect import bisect_right
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from fleetctl.documents.canonical import sha256_hex
from fleetctl.documents.mask import secrets_in
from fleetctl.documents.names import nearest
from fleetctl.documents.position import FleetSource, Path, path_text
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.file_tree import DISK, FileTree, Link, allowed_in_checkout
from fleetctl.problem import Problem, as_utf8

MAX_FILE_BYTES = 8 << 20
MAX_ALL_BYTES = 16 << 20
"""The most bytes of all files of one fleet, its bases included."""
MAX_FILES = 1000
STDIN_NAME = "<stdin>"


@dataclass(frozen=True, slots=True)
class SourceBytes:
    """The bytes of one fleet file; `file` = its name as given by the user."""

    file: str
    data: bytes

    @property
    def about(self) -> FleetSource:
        """The file as named in a plan, with the SHA-256 of its bytes."""
        return FleetSource(path=self.file, sha256=sha256_hex(self.data))


LARGE_IN_ALL = f"with this file the files of the fleet are larger than {MAX_ALL_BYTES >> 20} MiB in all"


def read_sources(
    sources: Sequence[str], stdin: Callable[[], bytes] | None, tree: FileTree = DISK
) -> tuple[list[SourceBytes], list[Problem]]:
    """Read all sources in argument order, folders sorted by name; a file that cannot be read becomes a problem."""
    read: list[SourceBytes] = []
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    left = MAX_ALL_BYTES
    for file in _files(sources, tree, problems):
        if len(seen) >= MAX_FILES:
            problems.append(Problem("FL004", f"more than {MAX_FILES} files; the others are not read", file,
                                    allowed="several models in one file"))
            break
        identity = STDIN_NAME if file == STDIN_NAME else tree.identity(file)
        if identity in seen:
            other = f"this is the same file as {seen[identity]}, which is also given"
            problems.append(Problem("FL003", "this file is given twice" if file == seen[identity] else other, file))
            continue
        seen[identity] = file
        try:
            source = read_file(file, tree, stdin)
            left -= len(source.data)
            if left < 0:
                problems.append(Problem("FL004", LARGE_IN_ALL, file))
                break
            read.append(source)
        except OSError as error:
            large = error.errno == errno.EFBIG
            problems.append(Problem("FL004" if large else "FL001", why_unreadable(error), file,
                                    allowed="split the fleet into several files" if large else None))
    return read, problems


def read_file(file: str, tree: FileTree, stdin: Callable[[], bytes] | None = None, *, limit: int = MAX_FILE_BYTES
              ) -> SourceBytes:
    """Return one whole file, or standard input; raises OSError, with EFBIG if it has more than `limit` bytes."""
    if file == STDIN_NAME and stdin is None:
        raise OSError("standard input is not available here")
    if as_utf8(file) != file:
        raise OSError("its name is not UTF-8 text")
    # one byte beyond the limit is enough to know that a file is too large
    data = stdin() if file == STDIN_NAME and stdin else tree.read(file, limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit >> 20} MiB")
    return SourceBytes(file, data)


def why_unreadable(error: OSError) -> str:
    """Return why a file could not be read."""
    return f"{error.strerror}" if error.errno == errno.EFBIG else f"cannot be read: {error.strerror or error}"


def _files(sources: Sequence[str], tree: FileTree, problems: list[Problem]) -> Iterator[str]:
    for source in sources:
        try:
            if source == "-":
                yield STDIN_NAME
            elif link := tree.link_out(source):
                problems.append(_leads_outside(source, link))
            elif tree.is_folder(source):
                yield from _folder(source, tree, problems)
            elif not tree.is_file(source):
                near = nearest_file(source, tree)
                problems.append(Problem("FL001", "no such file or folder", source, suggestion=near))
            else:
                yield source
        except OSError as error:  # no permission to search a folder, or the path is too long
            problems.append(Problem("FL001", why_unreadable(error), source))


def nearest_file(path: str, tree: FileTree, without: str = "") -> str | None:
    """Return the path of the most similar file in the folder of `path`, in the same form; never `without`."""
    folder, name = posixpath.split(path)
    try:
        found = nearest(name, [known for known in tree.names(folder or ".") if known not in (name, without)])
    except OSError:
        return None
    return posixpath.join(folder, found) if found else None


def fleet_files(folder: str, tree: FileTree) -> list[str]:
    """Return the names of a folder's fleet files, sorted; raises OSError."""
    return [name for name in tree.names(folder) if is_fleet_file(name)]


def is_fleet_file(name: str) -> bool:
    """Return whether a file with this name in a folder is a fleet file."""
    return PurePath(name).suffix in (".yaml", ".yml") and not name.startswith(".")


def _folder(folder: str, tree: FileTree, problems: list[Problem]) -> Iterator[str]:
    try:
        found = fleet_files(folder, tree)
    except OSError as error:
        problems.append(Problem("FL001", why_unreadable(error), folder))
        return
    if not found:
        problems.append(Problem("FL002", "no *.yaml or *.yml file in this folder", folder))
    for file in (str(PurePath(folder) / name) for name in found):
        if link := tree.link_out(file, listed=True):
            problems.append(_leads_outside(file, link))
        else:
            yield file


def _leads_outside(file: str, link: Link) -> Problem:
    what = "a link" if link.file == file else f"below {link.file}, a link"
    return Problem("FL001", f"this is {what} to {link.target}, which leads outside the checkout", file,
                   allowed=allowed_in_checkout(link.file))


_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_ENVIRONMENT = re.compile(r"\benv\b")
_PUNCTUATION = re.compile(r"[\[\],]|\"|'")
MOST_COMMAS = 200_000
JSON_START = re.compile(r"[ \t\r\n]*\{")
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


def is_json(text: str) -> bool:
    """Return whether a text is one JSON object; its keys may be there twice.

    False for one of more values than a fleet may have: the YAML parser stops at the first too many.
    """
    if JSON_START.match(text) is None or text.count(",") > MOST_COMMAS:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def decode(source: SourceBytes) -> SourceText:
    """Return the file as text without its byte order mark; raises FleetFileError if it is not text."""
    data = source.data.removeprefix(BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before, offset = data[:error.start], error.start + len(source.data) - len(data)
        column = len(before[before.rfind(b"\n") + 1:].decode("utf-8", "replace")) + 1
        utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
        message = ("this is UTF-16, not UTF-8" if utf16 else
                   f"byte 0x{data[error.start]:02x} at offset {offset} is not UTF-8")
        raise FleetFileError([Problem("FL005", message, source.file, before.count(b"\n") + 1, column,
                                      allowed="save the file as UTF-8")]) from None
    if text.count("\n") >= MAX_LINES:
        raise FleetFileError([Problem("FL014", f"more than {MAX_LINES} lines", source.file,
                                      allowed="split the fleet into several files")])
    starts = (0, *(match.end() for match in re.finditer("\n", text)))
    result = SourceText(source.file, text, starts)
    control = _CONTROL.search(text)
    if control is not None and not is_json(text):
        message = f"the control character U+{ord(control[0]):04X} is not allowed in YAML"
        allowed = 'an escape in double quotes, such as "\\u0007"'
        raise FleetFileError([result.problem("FL006", control.start(), message, secret=True, allowed=allowed)])
    return result
