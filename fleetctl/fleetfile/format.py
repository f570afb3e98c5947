"""`fmt`: one layout for all fleet files. Comments stay with their entry, and the meaning never changes.

Also changes values in a text with comments. Not a round trip of a YAML library: ruamel ties a comment to the key before
it, so sorting the keys would move the wrong comments, and re-indenting leaves comments behind. Here scalars and flow
collections are kept character by character. The result is checked against the comments counted by the YAML scanner,
which shares no code with the layout reader.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import yaml

from fleetctl.documents.plain_yaml import PARSER
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.compose import Composed, compose
from fleetctl.fleetfile.layout import (
    Block,
    Entry,
    GapLine,
    Leaf,
    Page,
    Piece,
    UnknownLayoutError,
    entry_of,
    split_gap,
    write_layout,
)
from fleetctl.fleetfile.sources import SourceBytes, SourceText, decode, is_json, read_sources
from fleetctl.problem import Problem

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
    """Return a fleet file in the layout of `fmt`; raises FleetFileError for a broken file or an unknown layout.

    JSON stays as it is: its writer has a layout of its own.
    """
    text = decode(source)
    composed = compose(text)
    if composed.problems:
        raise FleetFileError(sorted(composed.problems, key=lambda problem: (problem.line, problem.column)))
    if is_json(text.text):
        return Formatted(source.file, text.text, text.text, changed=False)
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
            again = compose(SourceText("", after, (0,)))
            if not again.problems and _meaning(again) == meaning and count_comments(after) == comments:
                return after
    except UnknownLayoutError as unknown:
        offset = min(unknown.offset, len(text.text))
        raise FleetFileError([_refusal(text, offset)]) from None
    raise FleetFileError([_refusal(text, 0)])


def _meaning(composed: Composed) -> list[str]:
    # true, 1 and 1.0 differ as JSON text, but are equal in Python
    return [json.dumps(document.value, sort_keys=True) for document in composed.documents]


def _refusal(text: SourceText, offset: int) -> Problem:
    return text.problem("FL017", offset, "fmt cannot format this safely; nothing was changed",
                        allowed="plain block mappings and lists, without directives and `? key`")


def with_values(text: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Return a text with the values of `before` changed to those of `after`, in the layout of `fmt`.

    A comment goes with the key that it touches, all others stay. None for an unknown layout, and if a value with
    comments inside brackets would be replaced: the caller checks the values of the result.
    """
    try:
        pages = read_layout("\n".join(text.splitlines()) + "\n" if text else "")
    except UnknownLayoutError:
        return None
    page = pages[0]
    top = Entry(None, "", value=page.root)
    if not _change(top, before, after):
        return None
    if page.root == Leaf(""):  # comments alone stay above what is added
        page.header, page.tail = page.tail, []
    page.root = top.value
    return write_layout(pages, sort=False)


def _change(entry: Entry, before: Any, after: Any) -> bool:  # noqa: ANN401  any YAML values
    """Change the value of an entry; return False if comments would be lost."""
    block = entry.value
    if before == after:
        return True
    if isinstance(block, Leaf) or not isinstance(before, dict) or not isinstance(after, dict):
        lost = count_comments(block.text) if isinstance(block, Leaf) else None
        entry.value = entry_of(None, _piece(after, one_line=isinstance(block, Leaf) and block.text[:1] == "{")).value
        return not lost
    kept: list[Entry] = []
    comments: list[str] = []
    for below in block.entries:
        name, value = below.name, below.value
        if name in after and (after[name] or isinstance(value, Leaf)):
            below.lead[:0], comments = comments, []
            kept.append(below)
            if not _change(below, before[name], after[name]):
                return False
            continue
        while below.lead and below.lead[-1]:
            below.lead.pop()
        comments += [*below.lead, *(value.tail if isinstance(value, Block) else ())]
    block.entries = [*kept, *(entry_of(name, _piece(value)) for name, value in after.items() if name not in before)]
    block.tail[:0] = comments
    return True


def _piece(value: Any, *, one_line: bool = False) -> Piece:  # noqa: ANN401  any YAML value
    if isinstance(value, dict):
        return Piece({key: _piece(below) for key, below in value.items()}, one_line=one_line)
    if isinstance(value, list):
        return Piece([_piece(below) for below in value], one_line=True)
    return Piece(value) if isinstance(value, str) else Piece(json.dumps(value), is_text=False)


def count_comments(text: str) -> Counter[str]:
    """Count each comment of a valid YAML text, including those inside brackets and after `|`."""
    found: Counter[str] = Counter()
    end = 0
    tokens: Any = yaml.scan(text, Loader=PARSER)
    for token in tokens:
        start = token.start_mark.index
        found.update(comment.rstrip() for comment in _COMMENT.findall(text, end, start))
        end = token.end_mark.index
        if isinstance(token, yaml.ScalarToken) and token.style in ("|", ">"):
            after_header = _AFTER_HEADER.match(text, start, end)
            found.update([after_header[1].rstrip()] if after_header else [])
    return found


_PROPERTIES = re.compile(r"[&!]\S*(?:[ \t]+[&!]\S*)?")
_DASH = re.compile(r"^ *(-)", re.MULTILINE)
_DIGIT = re.compile(r"(?:[&!]\S+\s+)*[|>][-+]?([0-9])")
_CHOMPED = re.compile(r"((?:^|(?<=[ \t]))[|>][0-9]?)[-+]?(?=[0-9]?(?:\s|$))")


def read_layout(text: str) -> list[Page]:
    """Return the documents of a valid YAML text with Unix newlines; raises UnknownLayoutError."""
    reader = _Reader(text)
    for event in yaml.parse(text, Loader=PARSER):
        reader.take(event)
    return reader.pages


@dataclass(slots=True)
class _OpenBlock:
    """A block that has not ended; `keyed` = the entry whose value comes next."""

    block: Block
    keyed: Entry | None = None


class _Reader:
    """The state of one pass.

    `cursor` = the first character not yet consumed; `pending` = the comment and blank lines before the next entry;
    `noted` = the entry on the current line, which a trailing comment belongs to; `closed` = the blocks that ended since
    the last entry.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.cursor = 0
        self.pages: list[Page] = []
        self.open: list[_OpenBlock] = []
        self.closed: list[Block] = []
        self.pending: list[GapLine] = []
        self.noted: Entry | Page | None = None
        self.flow_depth = 0
        self.flow_start = 0

    def take(self, event: Any) -> None:  # noqa: ANN401  the stubs call its marks optional
        start: int = event.start_mark.index
        end: int = event.end_mark.index
        if isinstance(event, yaml.DocumentStartEvent):
            self.begin_page(start, end, explicit=bool(event.explicit))
        elif isinstance(event, yaml.DocumentEndEvent):
            self.end_page(start, end, explicit=bool(event.explicit))
        elif isinstance(event, yaml.StreamEndEvent):
            self.gap(len(self.text))
            # a text with only comments is kept as a page without a value
            self.pages = self.pages or [Page()]
            self.pages[-1].tail += self.taken()
        elif isinstance(event, yaml.CollectionStartEvent) and (self.flow_depth or event.flow_style):
            self.flow_start = self.flow_start if self.flow_depth else start
            self.flow_depth += 1
        elif isinstance(event, yaml.CollectionEndEvent) and self.flow_depth:
            self.flow_depth -= 1
            if not self.flow_depth:
                self.leaf(self.flow_start, end)
        elif isinstance(event, yaml.CollectionStartEvent):
            self.begin_block(event, start)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.closed.append(self.open.pop().block)
        elif isinstance(event, yaml.NodeEvent) and not self.flow_depth:
            self.scalar(event, start, end)

    def begin_page(self, start: int, end: int, *, explicit: bool) -> None:
        if self.text.startswith("%", start):
            raise UnknownLayoutError(start)
        self.gap(start)
        page = Page(explicit=explicit)
        (page.above if explicit else page.header).extend(self.taken())
        self.pages.append(page)
        self.noted = page
        self.cursor = end if explicit else start

    def end_page(self, start: int, end: int, *, explicit: bool) -> None:
        self.gap(start)
        self.place_comments(-1)
        self.pages[-1].tail.extend(self.taken())
        self.noted = None
        self.cursor = end if explicit else start

    def begin_block(self, event: yaml.CollectionStartEvent, start: int) -> None:
        block = Block("mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence", self.column(start))
        owner = self.begin_value(start)
        if event.anchor or event.tag:
            properties = cast("re.Match[str]", _PROPERTIES.match(self.text, start))
            block.properties, block.column, self.cursor = properties[0], -1, properties.end()
            self.noted = owner if isinstance(owner, Entry) else None
        self.attach(owner, block)
        self.open.append(_OpenBlock(block))

    def scalar(self, event: yaml.NodeEvent, start: int, end: int) -> None:
        parent = self.open[-1] if self.open else None
        if parent is not None and parent.block.kind == "mapping" and parent.keyed is None:
            name = event.value if isinstance(event, yaml.ScalarEvent) else ""
            parent.keyed = self.begin_entry(Entry(self.text[start:end], name), start)
            self.cursor = end
            return
        if isinstance(event, yaml.ScalarEvent) and event.style in ("|", ">"):
            self.leaf(start, self.literal_end(start, end), literal=True, cut=event.value[-1:] not in ("", "\n"))
        else:
            self.leaf(start, end)

    def leaf(self, start: int, end: int, *, literal: bool = False, cut: bool = False) -> None:
        """Add a leaf; `cut` = a block scalar whose value does not end with a newline."""
        owner = self.begin_value(start)
        text = self.text[start:end]
        # `fmt` adds a newline at the end of the file; without it `|` meant `|-`
        self.attach(owner, Leaf(_CHOMPED.sub(r"\1-", text, count=1) if cut else text, literal))
        if isinstance(owner, Entry):
            # comments between a key and a value below it move above the key, and the value moves up
            if literal and owner.note:
                owner.lead.append(owner.note.strip())
                owner.note = ""
            owner.lead += [line for line in self.taken() if line]
        self.noted = owner if isinstance(owner, Entry) and not literal else None
        self.cursor = end

    def begin_value(self, start: int) -> Entry | Page:
        """Consume the text up to the start of a value, and return its entry or page."""
        if not self.open:
            self.gap(start)
            self.pages[-1].header.extend(self.taken())
            return self.pages[-1]
        parent = self.open[-1]
        if parent.block.kind == "sequence":
            return self.begin_entry(Entry(None, ""), start)
        if parent.keyed is None:
            raise UnknownLayoutError(start)
        owner, parent.keyed = parent.keyed, None
        self.gap(start)
        return owner

    def begin_entry(self, entry: Entry, start: int) -> Entry:
        block = self.open[-1].block
        if block.column < 0:
            dash = _DASH.search(self.text, self.cursor, start) if block.kind == "sequence" else None
            block.column = self.column(dash.start(1) if dash else start)
        self.gap(start)
        self.place_comments(block.column)
        entry.lead = self.taken()
        block.entries.append(entry)
        self.noted = entry
        return entry

    def attach(self, owner: Entry | Page, value: Leaf | Block) -> None:
        if isinstance(owner, Entry):
            owner.value = value
        else:
            owner.root = value

    def gap(self, until: int) -> None:
        """Consume the text up to `until`: a trailing comment of the current line, and the lines after it."""
        note, lines = split_gap(self.text[self.cursor : until], self.cursor)
        if note and self.noted is not None:
            if isinstance(self.noted, Entry) and self.noted.note:
                self.noted.lead.append(self.noted.note.strip())
            self.noted.note = note
        elif note:
            self.pending.append(GapLine(0, note.strip()))
        if note or self.text.find("\n", self.cursor, until) >= 0:
            self.noted = None
        for line in lines:
            # a run of blank lines becomes one
            if line.text or not self.pending or self.pending[-1].text:
                self.pending.append(line)
        self.cursor = until

    def place_comments(self, column: int) -> None:
        """Give comments that are indented deeper than the next entry to the blocks that ended before it."""
        kept = 0
        for number, line in enumerate(self.pending):
            owner = next((block for block in self.closed if block.column <= line.column), None)
            if line.text and (owner is None or line.column <= column):
                break
            if line.text and owner is not None:
                owner.tail += [lead.text for lead in self.pending[kept : number + 1]]
                kept = number + 1
        self.pending = self.pending[kept:]
        self.closed = []

    def taken(self) -> list[str]:
        lines = [line.text for line in self.pending]
        self.pending = []
        return lines

    def literal_end(self, start: int, end: int) -> int:
        """Return the end of a block scalar; blank lines after it are part of it only if it keeps them (`+`)."""
        header, _, body = self.text[start:end].partition("\n")
        if "+" in header.split("#")[0]:
            return end - 1 if self.text.endswith("\n", start, end) else end
        lines = body.split("\n")
        first = next((line for line in lines if line.strip(" ")), max(lines))
        # spaces beyond the indentation are content; a digit in the header gives it relative to the block's column
        digit = _DIGIT.match(header)
        column = self.open[-1].block.column if self.open else -1
        indent = max(0, column + int(digit[1])) if digit else len(first) - len(first.lstrip(" "))
        while lines and not lines[-1].strip(" ") and len(lines[-1]) <= indent:
            lines.pop()
        return start + len("\n".join([header, *lines]))

    def column(self, offset: int) -> int:
        return offset - self.text.rfind("\n", 0, offset) - 1
