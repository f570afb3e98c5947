"""Plain YAML. Scalars by the YAML 1.2 core schema: `on`, `yes`, `12:30` are text; and which text needs no quotes.

Documents without aliases, so that a small text stays small, and without dates, so that times stay text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import yaml
from yaml import ScalarNode
from yaml.resolver import Resolver

MAX_DIGITS = 300

_NUMBER_START = frozenset("+-.0123456789")
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")

Scalar = str | int | float | bool | None
_TEXT_TAG = "tag:yaml.org,2002:str"
_RESOLVER: Any = Resolver()  # the stubs leave its arguments untyped
_YES_OR_NO = ("y", "Y", "n", "N")  # YAML 1.1 booleans that PyYAML reads as text


def resolve_plain(text: str) -> Scalar:
    """Return the value of an unquoted scalar; raises ValueError for a number of more than MAX_DIGITS characters."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    return _number(text)


def _number(text: str) -> str | int | float:
    if _FLOAT.fullmatch(text) and len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} characters")
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL_OR_HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if infinite := _INFINITY.fullmatch(text):
        return float(f"{infinite[1]}inf")
    return float("nan") if text in (".nan", ".NaN", ".NAN") else text


@lru_cache(maxsize=4096)
def is_text_to_all(text: str) -> bool:
    """Return whether every YAML reader takes a plain scalar as this text; some read `on` and `12:30` differently."""
    try:
        ours = resolve_plain(text)
    except ValueError:
        return False
    theirs = _RESOLVER.resolve(ScalarNode, text, (True, False))
    return isinstance(ours, str) and bool(theirs == _TEXT_TAG) and text not in _YES_OR_NO


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class PlainLoader(_Base):  # type: ignore[misc]
    """Safe YAML without dates; uses the C parser if available."""

    yaml_implicit_resolvers = {  # noqa: RUF012  as PyYAML defines it
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()}


MAX_DEPTH = 100


def load_plain(text: str) -> Any:  # noqa: ANN401  any YAML value
    """Return the value in a text; raises MarkedYAMLError at the first alias, or if it is nested too deeply.

    This is checked before anything is built: an alias can expand enormously, and the C parser recurses without limit.
    """
    depth = 0
    for event in yaml.parse(text, Loader=PlainLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or isinstance(event, yaml.AliasEvent):
            problem = f"nested deeper than {MAX_DEPTH}" if depth > MAX_DEPTH else "aliases are not supported"
            mark: Any = event.start_mark
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
    return yaml.load(text, Loader=PlainLoader)  # noqa: S506  a subclass of the safe loader
