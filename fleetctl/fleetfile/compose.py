"""Composes YAML text into documents with positions, in one pass over the events of the C parser.

The event loop is our own because PyYAML's composer recurses in C and crashes on deep nesting, expands aliases without
limit, drops duplicate keys and resolves scalars by YAML 1.1. Merge keys are applied, and keys that are duplicate or not
text are reported.

A file that is JSON is read as the same events: YAML refuses an escaped pair for one character beyond U+FFFF, a key of
more than 1024 characters and some characters as themselves, and it takes others, such as U+2028, for the end of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from json import decoder
from typing import Any

import yaml

from fleetctl.documents.plain_yaml import MAX_DIGITS, PARSER, Scalar, resolve_plain
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.nodes import Children, Document, Node
from fleetctl.fleetfile.sources import SourceBytes, SourceText, decode, is_json
from fleetctl.problem import Problem

DUPLICATE_KEY = "FL010"
MAX_DEPTH = 64
MAX_NODES = 200_000
"""The most values in the files of one fleet, counting each alias in full, and each 64 characters of a text as one."""
MANY_FLEETS = "several fleets, each with a metadata.name of its own and a part of the models"
MAX_TEXT = 128 << 10
"""The most characters of one text: Linux takes no longer argument or variable."""
MAX_DOCUMENTS = 10_000
MAX_NOTES = 3000
"""The most problems of one file's YAML: more than a run lists."""
MASKED_TAG = "!masked"
"""`render` writes this tag before each value it hides, so that its output cannot be loaded by mistake."""

_Event = Any
"""An event of the C parser. Its marks are always set; the stubs call them optional."""
_INDENT_TAB = re.compile(r" *\t")
_BRACES = re.compile(r"\$\{(\w+)\}")
_HINTS = (
    ("mapping values are not allowed", "quote text that contains a colon and a space"),
    ("did not find expected ',' or", "a bracket is not closed, or a comma is missing"),
    ("unexpected end of stream", "a quote or bracket is not closed"),
    ("did not find expected key", "all keys of a mapping must start in the same column"),
    ("did not find expected '-' indicator", "all items of a list must start in the same column"),
    ("found character that cannot start any token", "quote text that begins with @, ` or %"),
    ("could not find expected ':'", "a colon is missing, or a quote is not closed"),
    ("found invalid Unicode character escape code", "write \\U and eight digits, or the character itself"),
    ("found unknown escape character", "in single quotes a backslash is an ordinary character"),
)


@dataclass(slots=True)
class Composed:
    """The non-empty documents of one file, and its YAML problems; `broken` = the file could not be read whole.

    `size` = the number of its values.
    """

    documents: list[Document] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    broken: bool = False
    size: int = 0


def compose_bytes(source: SourceBytes, before: int = 0) -> Composed:
    """Return the documents of a file; a file that is not text is broken and has none.

    `before` = the number of values in files that were read before, which count toward the same limit.
    """
    try:
        return compose(decode(source), before)
    except FleetFileError as error:
        return Composed(problems=list(error.problems), broken=True)


def compose(source: SourceText, before: int = 0) -> Composed:
    """Return the documents of a file. A syntax error or a limit stops the parser; all other problems are collected."""
    composer = _Composer(source, before)
    result = composer.result
    events = yaml.parse(source.text, Loader=PARSER)
    if is_json(source.text):
        events = json_events(source)
    try:
        for event in events:
            composer.take(event)
        return result
    except FleetFileError as error:
        result.problems += error.problems
    except yaml.MarkedYAMLError as error:
        problem = syntax_problem(source, error)
        result.problems.append(replace(problem, source_line=None) if composer.in_env() else problem)
    except yaml.YAMLError as error:
        result.problems.append(source.problem("FL008", 0, f"this is not valid YAML: {str(error).splitlines()[0]}"))
    result.broken = True
    result.size += sum(opened.node.size for opened in composer.stack)
    return result


@dataclass(slots=True)
class _OpenNode:
    """A collection whose end has not been read yet. `key` = the key whose value comes next, and its offset.

    `merged` = the mappings that its `<<`, at `merged_at`, merges into it.
    """

    node: Node
    anchor: str | None
    key: tuple[Node, int] | None = None
    merged: list[Children] = field(default_factory=list)
    merged_at: int = -1


class _Composer:
    """The state of one pass: the open collections, and the anchors of the current document."""

    def __init__(self, source: SourceText, before: int) -> None:
        self.source = source
        self.left = MAX_NODES - before
        self.count = 0
        self.result = Composed()
        self.stack: list[_OpenNode] = []
        self.anchors: dict[str, Node | None] = {}

    def take(self, event: _Event) -> None:
        """Handle one event. Scalars come first because most events are scalars."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self.scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self.open(event)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self.close()
        elif kind is yaml.AliasEvent:
            self.alias(event)
        elif kind is yaml.DocumentStartEvent:
            self.anchors = {}
            self.count += 1
            if self.count > MAX_DOCUMENTS:
                raise self.fatal("FL014", event.start_mark.index, f"more than {MAX_DOCUMENTS} documents in one file",
                                 "several files, or one document with all its models")

    def note(self, code: str, at: int, message: str, *, allowed: str | None = None, suggestion: str | None = None,
             secret: bool = False) -> None:
        """Collect a problem; `secret` hides the source line."""
        if len(self.result.problems) >= MAX_NOTES:
            raise self.fatal("FL019", at, f"more than {MAX_NOTES} problems; the rest of this file is not read")
        self.result.problems.append(self.source.problem(code, at, message, allowed=allowed, suggestion=suggestion,
                                                        secret=secret or self.in_env()))

    def fatal(self, code: str, at: int, message: str, allowed: str | None = None) -> FleetFileError:
        """Return the error that stops the parser."""
        return FleetFileError([self.source.problem(code, at, message, allowed=allowed, secret=self.in_env())])

    def scalar(self, event: _Event) -> None:
        at: int = event.start_mark.index
        if event.tag is not None:
            self.refuse_tag(event.tag, at)
        if len(event.value) > MAX_TEXT:
            raise self.fatal("FL014", at, f"a text of {len(event.value)} characters, more than {MAX_TEXT}",
                             "a file on the nodes, whose name the engine gets instead")
        plain = event.implicit[0] and not event.style
        value: Scalar = event.value
        if plain:
            try:
                value = resolve_plain(event.value)
            except ValueError as error:
                self.note("FL016", at, f"{error} is too long", allowed=f"at most {MAX_DIGITS}")
                value = 0
        node = Node(at, value, raw=event.value, plain=plain, size=1 + (len(event.value) >> 6))
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        self.add(node, at)

    def open(self, event: _Event) -> None:
        at: int = event.start_mark.index
        if len(self.stack) >= MAX_DEPTH:
            raise self.fatal("FL014", at, f"nested more than {MAX_DEPTH} levels deep",
                             "no key of a fleet file is deeper than 20 levels: is a bracket or an indentation wrong?")
        if event.tag is not None:
            self.refuse_tag(event.tag, at)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        is_mapping = type(event) is yaml.MappingStartEvent
        self.stack.append(_OpenNode(Node(at, {}, {}) if is_mapping else Node(at, [], []), event.anchor))

    def close(self) -> None:
        """End a collection. The keys of a mapping win over merged ones, and of these the earlier source."""
        opened = self.stack.pop()
        node = opened.node
        entries: Any = node.children
        for name, (_, _, value) in (entry for merged in opened.merged for entry in merged.items()):
            if name not in entries:
                entries[name] = (opened.merged_at, opened.merged_at, value)
                node.value[name] = value.value
        if opened.anchor is not None:
            self.anchors[opened.anchor] = node
        self.add(node, node.at)

    def alias(self, event: _Event) -> None:
        at: int = event.start_mark.index
        if event.anchor not in self.anchors:
            named = f"the alias *{event.anchor} has no anchor &{event.anchor} before it"
            raise self.fatal("FL013", at, "text that begins with * must be quoted" if self.in_env() else named)
        node = self.anchors[event.anchor]
        if node is None:
            raise self.fatal("FL013", at, f"the alias *{event.anchor} is inside its own anchor")
        self.add(node, at)

    def add(self, node: Node, at: int) -> None:
        """Add a finished node to its parent collection; a top-level node is a document, unless it is empty.

        `at` = the offset of the node, or of the alias to it.
        """
        size = node.size
        if self.stack:
            parent = self.stack[-1]
            parent.node.size = size = parent.node.size + size
            if isinstance(parent.node.children, list):
                parent.node.children.append((at, at, node))
                parent.node.value.append(node.value)
            elif parent.key is None:
                parent.key = node, at
            else:
                (key, key_at), parent.key = parent.key, None
                self.pair(parent, key, key_at, node, at)
        elif node.value is not None or node.raw:
            self.result.size += size
            self.left -= size
            size = 0
            self.result.documents.append(Document(self.source, node))
        # an alias counts in full, so an alias bomb is found before anything is expanded
        if size > self.left:
            raise self.fatal("FL014", at, f"more than {MAX_NODES} values in one fleet, with aliases expanded",
                             MANY_FLEETS)

    def pair(self, parent: _OpenNode, key: Node, key_at: int, node: Node, at: int) -> None:
        """Add a key and its value to a mapping, or note what `<<` merges into it."""
        entries: Any = parent.node.children
        if key.plain and key.raw == "<<":
            if parent.merged_at >= 0:
                self.duplicate("<<", parent.merged_at, key_at)
            parent.merged_at = key_at
            sources = [entry[2] for entry in node.children] if isinstance(node.children, list) else [node]
            mappings = [source.children for source in sources if isinstance(source.children, dict)]
            if len(mappings) < len(sources):
                self.note("FL015", key_at, "<< merges only mappings",
                          allowed="<<: *a or <<: [*a, *b], aliases of mappings")
            parent.merged += mappings
            return
        name = key.value if isinstance(key.value, str) else key.raw
        if key.children is not None:
            self.note("FL011", key_at, "a list or mapping is used as a key", allowed="text")
            return
        if name is not key.value:
            self.note("FL011", key_at, f"the key {name or 'null'} is not text", allowed="text", suggestion=f'"{name}"')
        if name in entries:
            self.duplicate(name, entries[name][0], key_at)
            return
        entries[name] = (key_at, at, node)
        parent.node.value[name] = node.value

    def duplicate(self, name: str, first: int, at: int) -> None:
        line, column = self.source.position(first)
        self.note(DUPLICATE_KEY, at, f'duplicate key "{name}"; the first is at {line}:{column}')

    def in_env(self) -> bool:
        """Return whether this is inside an `env` mapping, where an unquoted secret may look like YAML syntax."""
        return any(opened.key is not None and opened.key[0].raw == "env" for opened in self.stack)

    def refuse_tag(self, tag: str, at: int) -> None:
        if tag == MASKED_TAG:
            self.note("FL012", at, "this value was masked by `fleetctl render`",
                      allowed="the real value; `fleetctl render --show-env` prints it")
            return
        if self.in_env():
            self.note("FL012", at, "text that begins with ! must be quoted", secret=True)
            return
        shown = tag.replace("tag:yaml.org,2002:", "!!")
        self.note("FL012", at, f"the YAML tag {shown} is not allowed in fleet files", allowed="the value without a tag")


def syntax_problem(source: SourceText, error: yaml.MarkedYAMLError) -> Problem:
    """Return the problem of a syntax error: the tab that caused it, or else the parser's message and a hint."""
    mark = error.problem_mark or error.context_mark
    at = min(mark.index, len(source.text)) if mark else 0
    tab = _tab_at(source, at)
    if tab is not None:
        return source.problem("FL009", tab, "a tab is used for indentation", allowed="spaces")
    braces = _BRACES.match(source.text, max(at - 1, 0))
    if braces:  # `[--port, ${FLEETCTL_PORT}]`
        meant = f"$({braces[1]})" if braces[1].startswith("FLEETCTL_") else f'"{braces[0]}" in quotes'
        return source.problem("FL008", at - 1, f"this is not valid YAML: unquoted {braces[0]} inside brackets",
                              suggestion=meant)
    message = error.problem or "the parser gave no reason"
    hint = next((f"; {hint}" for known, hint in _HINTS if known in message), "")
    start = error.context_mark
    if start is not None and error.context and start.index < at:
        line, column = source.position(start.index)
        message += f", {error.context} that begins at {line}:{column}"
    return source.problem("FL008", at, f"this is not valid YAML: {message}{hint}")


def _tab_at(source: SourceText, at: int) -> int | None:
    """Return the offset of a tab in the indentation of the line where the parser stopped, or of the line before it."""
    if source.text[at : at + 1] == "\t":
        return at
    number, _ = source.position(at)
    for line in (number, number - 1):
        if line >= 1 and (match := _INDENT_TAB.match(source.line(line))):
            return source.line_starts[line - 1] + match.end() - 1
    return None


_EVENTS: Any = vars(yaml)
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
    yield _EVENTS["DocumentStartEvent"](_Mark(0), _Mark(0))
    while token := _TOKEN.search(text, at):
        start, word, at = token.start(), token[0], token.end()
        mark = _Mark(start)
        if word == '"':
            value, at = _SCAN_TEXT(text, at)
            if "\0" in value or not value.isascii():
                _check_escapes(source, start, at)
            yield _EVENTS["ScalarEvent"](None, None, (False, True), value, mark, _Mark(at), style='"')
        elif word in "{[":
            kind = "MappingStartEvent" if word == "{" else "SequenceStartEvent"
            yield _EVENTS[kind](None, None, True, mark, _Mark(at), flow_style=True)
        elif word in "}]":
            yield _EVENTS["MappingEndEvent" if word == "}" else "SequenceEndEvent"](mark, _Mark(at))
        else:
            yield _EVENTS["ScalarEvent"](None, None, (True, False), word, mark, _Mark(at))


def _check_escapes(source: SourceText, start: int, end: int) -> None:
    for escape in _ESCAPE.finditer(source.text, start, end):
        if half := escape[2]:
            what = "a NUL character, which no text may have" if half == "0000" else (
                "half of a character: JSON writes one beyond U+FFFF as two such escapes")
            raise FleetFileError([source.problem("FL006", escape.start(), f"{escape[0]} is {what}", secret=True)])
