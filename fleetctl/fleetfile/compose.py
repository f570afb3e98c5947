"""Composes YAML text into documents with positions, in one pass over the events of the C parser.

The event loop is our own because PyYAML's composer recurses in C and crashes on deep nesting, expands aliases without
limit, drops duplicate keys and resolves scalars by YAML 1.1. Merge keys are applied, and keys that are duplicate or not
text are reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from yaml import cyaml

from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.nodes import Children, Document, Entry, Node
from fleetctl.fleetfile.scalars import MAX_DIGITS, Scalar, resolve_plain
from fleetctl.fleetfile.sources import SourceBytes, SourceText, decode, is_json
from fleetctl.problem import Problem

DUPLICATE_KEY = "FL010"

Note = Callable[..., None]
"""Reports a problem: code, offset, message, and optionally `allowed` and `suggestion`."""


class OpenList:
    """A list under construction."""

    def __init__(self, at: int, anchor: str | None) -> None:
        self.items: list[Entry] = []
        self.node = Node(at, [], self.items)
        self.anchor = anchor

    def add(self, node: Node, at: int) -> None:
        """Append an item; `at` is the offset of the item, or of the alias to it."""
        self.items.append((at, at, node))
        self.node.value.append(node.value)

    def close(self) -> Node:
        """Return the list."""
        return self.node


class OpenMapping:
    """A mapping under construction; keys and values are added in turn."""

    def __init__(self, at: int, anchor: str | None, source: SourceText, note: Note) -> None:
        self.entries: Children = {}
        self.node = Node(at, {}, self.entries)
        self.anchor = anchor
        self._source = source
        self._note = note
        self._key: tuple[Node, int] | None = None
        self._merges: list[Children] = []
        self._merged_at = -1

    def add(self, node: Node, at: int) -> None:
        """Add a key, or the value of the key added before."""
        if self._key is None:
            self._key = (node, at)
            return
        key, key_at = self._key
        self._key = None
        if key.plain and key.raw == "<<":
            self._merge(node, key_at)
            return
        name = key.value if isinstance(key.value, str) else key.raw
        if key.children is not None:
            self._note("FL011", key_at, "a list or mapping is used as a key", allowed="text")
            return
        if name is not key.value:
            self._note("FL011", key_at, f"the key {name or 'null'} is not text", allowed="text", suggestion=f'"{name}"')
        if name in self.entries:
            self._duplicate(name, self.entries[name][0], key_at)
            return
        self.entries[name] = (key_at, at, node)
        self.node.value[name] = node.value

    @property
    def open_key(self) -> str | None:
        """The key whose value comes next."""
        return self._key[0].raw if self._key else None

    def close(self) -> Node:
        """Return the mapping with its merge keys applied: its own keys win, then the earlier source."""
        for merged in self._merges:
            for name, (_, _, node) in merged.items():
                if name not in self.entries:
                    self.entries[name] = (self._merged_at, self._merged_at, node)
                    self.node.value[name] = node.value
        return self.node

    def _duplicate(self, name: str, first: int, at: int) -> None:
        line, column = self._source.position(first)
        self._note(DUPLICATE_KEY, at, f'duplicate key "{name}"; the first is at {line}:{column}')

    def _merge(self, node: Node, at: int) -> None:
        if self._merged_at >= 0:
            self._duplicate("<<", self._merged_at, at)
        self._merged_at = at
        sources = [entry[2] for entry in node.children] if isinstance(node.children, list) else [node]
        mappings = [source.children for source in sources if isinstance(source.children, dict)]
        if len(mappings) < len(sources):
            self._note("FL015", at, "<< merges only mappings", allowed="<<: *a or <<: [*a, *b], aliases of mappings")
        self._merges.extend(mappings)


OpenCollection = OpenList | OpenMapping
"""A collection whose end has not been read yet."""


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

# untyped because the stubs of `parse` ask for a whole loader
_PARSER: Any = vars(cyaml)["CParser"]
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
    events = yaml.parse(source.text, Loader=_PARSER)
    if is_json(source.text):
        from fleetctl.fleetfile.json_text import json_events  # most fleet files are YAML

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
    composer.stack.clear()  # each open mapping refers to the composer, so the values would outlive this call
    return result


class _Composer:
    """The state of one pass: the open collections, and the anchors of the current document."""

    def __init__(self, source: SourceText, before: int) -> None:
        self.source = source
        self.left = MAX_NODES - before
        self.count = 0
        self.result = Composed()
        self.stack: list[OpenCollection] = []
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
        self.place(node, at)

    def open(self, event: _Event) -> None:
        at: int = event.start_mark.index
        if len(self.stack) >= MAX_DEPTH:
            raise self.fatal("FL014", at, f"nested more than {MAX_DEPTH} levels deep",
                             "no key of a fleet file is deeper than 20 levels: is a bracket or an indentation wrong?")
        if event.tag is not None:
            self.refuse_tag(event.tag, at)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        if type(event) is yaml.MappingStartEvent:
            self.stack.append(OpenMapping(at, event.anchor, self.source, self.note))
        else:
            self.stack.append(OpenList(at, event.anchor))

    def close(self) -> None:
        opened = self.stack.pop()
        node = opened.close()
        if opened.anchor is not None:
            self.anchors[opened.anchor] = node
        self.place(node, node.at)

    def alias(self, event: _Event) -> None:
        at: int = event.start_mark.index
        if event.anchor not in self.anchors:
            named = f"the alias *{event.anchor} has no anchor &{event.anchor} before it"
            raise self.fatal("FL013", at, "text that begins with * must be quoted" if self.in_env() else named)
        node = self.anchors[event.anchor]
        if node is None:
            raise self.fatal("FL013", at, f"the alias *{event.anchor} is inside its own anchor")
        self.place(node, at)

    def place(self, node: Node, at: int) -> None:
        """Add a finished node to its parent collection; a top-level node is a document, unless it is empty."""
        size = node.size
        if self.stack:
            parent = self.stack[-1]
            parent.node.size = size = parent.node.size + size
            parent.add(node, at)
        elif node.value is not None or node.raw:
            self.result.size += size
            self.left -= size
            size = 0
            self.result.documents.append(Document(self.source, node))
        # an alias counts in full, so an alias bomb is found before anything is expanded
        if size > self.left:
            raise self.fatal("FL014", at, f"more than {MAX_NODES} values in one fleet, with aliases expanded",
                             MANY_FLEETS)

    def in_env(self) -> bool:
        """Return whether this is inside an `env` mapping, where an unquoted secret may look like YAML syntax."""
        return any(isinstance(opened, OpenMapping) and opened.open_key == "env" for opened in self.stack)

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
