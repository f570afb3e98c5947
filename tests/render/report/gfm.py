"""Parses Markdown with a real parser for GitHub's tables, to tell text from markup."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


@dataclass(frozen=True)
class Inline:
    """One run of text: its content, its tokens, and the part that is not code."""

    text: str
    kinds: tuple[str, ...]
    plain: str


@lru_cache(maxsize=8)
def _tokens(markdown: str) -> tuple[Token, ...]:
    return tuple(PARSER.parse(markdown))


def shape(markdown: str) -> list[tuple[str, str]]:
    """The blocks of a document, without their content."""
    return [(token.type, token.tag) for token in _tokens(markdown)]


def inlines(markdown: str) -> list[Inline]:
    """Every run of text, in the order of the document; a line break in a cell is a newline."""
    return [_read(token) for token in _tokens(markdown) if token.type == "inline"]


def html_blocks(markdown: str) -> list[str]:
    """Every block of raw HTML."""
    return [token.content for token in _tokens(markdown) if token.type == "html_block"]


def tables(markdown: str) -> list[list[list[str]]]:
    """Every table as rows of cells, with the head first."""
    found: list[list[list[str]]] = []
    for token in _tokens(markdown):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and found and token.level > 2:
            found[-1][-1].append(_read(token).text)
    return found


def _read(token: Token) -> Inline:
    children = list(token.children or [])
    text = "".join("\n" if child.content == "<br>" and child.type == "html_inline" else child.content
                   for child in children)
    plain = "\n".join(child.content for child in children if child.type == "text")
    return Inline(text, tuple(_kinds(children)), plain)


def _kinds(children: list[Token]) -> Iterator[str]:
    for child in children:
        yield child.content if child.type == "html_inline" else child.type
