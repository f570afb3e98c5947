"""Plain YAML. Scalars by the YAML 1.2 core schema: `on`, `yes`, `12:30` are text; and which text needs no quotes.

Documents without aliases, so that a small text stays small, and without tags and dates, so that times stay text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import yaml
from yaml import ScalarNode, cyaml
from yaml.resolver import Resolver

MAX_DIGITS = 300

PARSER: Any = vars(cyaml)["CParser"]
"""The C parser alone, for our own loops over its events; untyped, since the stubs of `parse` ask for a whole loader."""

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


MAX_DEPTH = 100


def load_plain(text: str) -> Any:  # noqa: ANN401  any YAML value
    """Return the value in a text, None if it has none.

    Raises MarkedYAMLError at the first alias, tag or second document, at a key that is a collection or comes twice, and
    if it is nested too deeply: our own loop, since an alias can expand enormously, and PyYAML's composer recurses
    without limit. Raises ValueError for a number with too many characters.
    """
    opened: list[list[Any]] = [[]]
    """The parts of each open collection; of a mapping, keys and values in turn."""
    keys: list[set[Any] | None] = [None]
    """The scalar keys of each open mapping so far; None for a list."""
    for event in yaml.parse(text, Loader=PARSER):
        mark: Any = event.start_mark
        if problem := _why_refused(event, opened):
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append([])
            keys.append(set() if isinstance(event, yaml.MappingStartEvent) else None)
        elif isinstance(event, yaml.ScalarEvent):
            value = resolve_plain(event.value) if event.implicit[0] and not event.style else event.value
            before = keys[-1]
            if before is not None and len(opened[-1]) % 2 == 0:
                if value in before:
                    raise yaml.MarkedYAMLError(problem=f"the key {event.value} comes twice", problem_mark=mark)
                before.add(value)
            opened[-1].append(value)
        elif isinstance(event, yaml.CollectionEndEvent):
            parts = opened.pop()
            keys.pop()
            is_mapping = isinstance(event, yaml.MappingEndEvent)
            opened[-1].append(dict(zip(parts[::2], parts[1::2], strict=True)) if is_mapping else parts)
    return opened[0][0] if opened[0] else None


def place_in(text: str, path: Sequence[str | int]) -> tuple[int, int] | None:
    """Return line and column of the value at a path of keys and indices, counted from 1, in YAML or JSON.

    None if there is no such value, or the text is not YAML.
    """
    steps: list[list[str | int]] = [[]]
    """Of each open collection: the key or index of its next value, or nothing where a key comes next."""
    try:
        for event in yaml.parse(text, Loader=PARSER):
            if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
                at = [step[0] for step in steps[1:] if step]
                if len(at) == len(steps) - 1 and at == [*path]:
                    mark: Any = event.start_mark
                    return mark.line + 1, mark.column + 1
            if isinstance(event, yaml.CollectionStartEvent):
                steps.append([0] if isinstance(event, yaml.SequenceStartEvent) else [])
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                steps.pop()
            elif isinstance(event, yaml.ScalarEvent) and len(steps) > 1 and not steps[-1]:
                steps[-1].append(event.value)
                continue
            elif not isinstance(event, yaml.ScalarEvent):
                continue
            last = steps[-1]
            if last:
                last[:] = [last[0] + 1] if isinstance(last[0], int) else []
    except (yaml.YAMLError, ValueError):
        pass
    return None


def _why_refused(event: yaml.Event, opened: list[list[Any]]) -> str | None:
    if isinstance(event, yaml.AliasEvent):
        return "aliases are not supported"
    if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) and event.tag is not None:
        return f"the tag {event.tag} is not supported"
    if isinstance(event, yaml.DocumentStartEvent) and opened[0]:
        return "a second document"
    if isinstance(event, yaml.CollectionStartEvent) and len(opened) > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH}"
    if isinstance(event, yaml.MappingEndEvent) and any(isinstance(key, (dict, list)) for key in opened[-1][::2]):
        return "a key that is a list or a mapping"
    return None
