"""YAML syntax errors with a hint what to do."""

from __future__ import annotations

import re

import yaml

from fleetctl.fleetfile.text import SourceText
from fleetctl.problem import Problem

_INDENT_TAB = re.compile(r" *\t")
_BRACES = re.compile(r"\$\{(\w+)\}")
_HINTS = (
    ("mapping values are not allowed", "text with a colon and a space in it must be quoted"),
    ("did not find expected ',' or", "a bracket is not closed, or a comma is missing"),
    ("unexpected end of stream", "a quote or bracket is not closed"),
    ("did not find expected key", "keys of one mapping begin in the same column"),
    ("did not find expected '-' indicator", "items of one list begin in the same column"),
    ("found character that cannot start any token", "text that begins with @, ` or % must be quoted"),
    ("could not find expected ':'", "a colon is missing, or a quote is not closed"),
    ("found unknown escape character", "in single quotes a backslash is an ordinary character"),
)


def syntax_problem(source: SourceText, error: yaml.MarkedYAMLError) -> Problem:
    """Return the problem of a syntax error: a tab where that is the cause, otherwise the parser's words and a hint."""
    mark = error.problem_mark or error.context_mark
    at = min(mark.index, len(source.text)) if mark else 0
    tab = _tab_at(source, at)
    if tab is not None:
        return source.problem("FL009", tab, "a tab is used for indentation", allowed="spaces")
    words = error.problem or "the parser gave up"
    hint = next((f"; {hint}" for known, hint in _HINTS if known in words), "")
    braces = _BRACES.match(source.text, max(at - 1, 0))
    if braces:  # `[--port, ${FLEETCTL_PORT}]`
        ours = f"$({braces[1]})" if braces[1].startswith("FLEETCTL_") else f'"{braces[0]}", in quotes'
        return source.problem("FL008", at - 1, f"this is not valid YAML: {braces[0]} in brackets", suggestion=ours)
    return source.problem("FL008", at, f"this is not valid YAML: {words}{_context(source, error, at)}{hint}")


def _context(source: SourceText, error: yaml.MarkedYAMLError, at: int) -> str:
    began = error.context_mark
    if began is None or not error.context or began.index >= at:
        return ""
    line, column = source.position(began.index)
    return f", {error.context} that begins at {line}:{column}"


def _tab_at(source: SourceText, at: int) -> int | None:
    """Return the offset of a tab in the indentation of the line, or of the line before it, where the parser stopped."""
    if source.text[at : at + 1] == "\t":
        return at
    number, _ = source.position(at)
    for line in (number, number - 1):
        if line >= 1 and (match := _INDENT_TAB.match(source.line(line))):
            return source.line_starts[line - 1] + match.end() - 1
    return None
