"""What `fmt` may not change, read by PyYAML in plain Python, independent of libyaml and of fleetctl's reader."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import Resolver
from yaml.scanner import Scanner


@dataclass(frozen=True)
class Content:
    """A file's content: digests of its documents' values, and its comments."""

    documents: list[str]
    comments: Counter[str]


def content(text: str) -> Content:
    """Return the content of a YAML text; raises yaml.YAMLError."""
    reader: Any = _Reader(text)
    documents = []
    while reader.check_node():
        documents.append(_digest(reader.get_node(), {}))
    return Content(documents, _comments(text, reader.places))


class _Reader(Reader, Scanner, Parser, Composer, Resolver):  # type: ignore[misc]  # the stubs have no common base
    """PyYAML's stages, recording the places of all tokens."""

    def __init__(self, text: str) -> None:
        self.places: list[tuple[int, int, bool]] = []
        for stage in (Reader, Scanner, Parser, Composer, Resolver):
            stage.__init__(self, *([text] if stage is Reader else []))  # type: ignore[arg-type]

    def get_token(self) -> Any:
        token: Any = super().get_token()
        literal = isinstance(token, yaml.ScalarToken) and token.style in ("|", ">")
        self.places.append((token.start_mark.index, token.end_mark.index, literal))
        return token


def _digest(node: Any, known: dict[int, str]) -> str:
    """Return a digest of a value that ignores the order of keys, quotes and the style of text."""
    if id(node) not in known:
        known[id(node)] = "itself"
        if isinstance(node, yaml.ScalarNode):
            parts = [node.value]
        elif isinstance(node, yaml.SequenceNode):
            parts = [_digest(item, known) for item in node.value]
        else:
            parts = sorted(f"{_digest(key, known)} {_digest(value, known)}" for key, value in node.value)
        known[id(node)] = hashlib.sha256(repr((node.tag, parts)).encode()).hexdigest()
    return known[id(node)]


def _comments(text: str, tokens: list[tuple[int, int, bool]]) -> Counter[str]:
    found: Counter[str] = Counter()
    end = 0
    for start, after, literal in tokens:
        found.update(comment.rstrip() for comment in re.findall(r"#[^\r\n]*", text[end:start]))
        end = after
        if literal:
            found.update(comment.rstrip() for comment in re.findall(r"\s(#.*)", text[start:after].splitlines()[0]))
    return found
