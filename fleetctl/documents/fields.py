"""The fields of the fleet file by their paths, as the published schema describes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetctl.documents.nearest import did_you_mean
from fleetctl.documents.quantity import some
from fleetctl.documents.schema_words import JsonSchema, default_words, definition_of, kind_words
from fleetctl.documents.schemas import json_schema
from fleetctl.errors import UsageError

Names = tuple[str, ...]
HOMES: tuple[Names, ...] = ((), ("spec",), ("spec", "models"))
"""Where a path may begin, in this order; then anywhere, in a model first."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field; lists add nothing to its `path`. `about` is what it is for, `mapping` what its value as a whole is."""

    path: Names
    kind: str
    default: str
    about: str
    mapping: str = ""

    @property
    def text(self) -> str:
        """The path as people write it; that of the whole file is empty."""
        return ".".join(self.path)


def all_fields() -> list[Field]:
    """Return every field, each before those below it; the first is the whole document."""
    schema = json_schema("fleet")
    return [Field((), "mapping", "", "", schema["description"]), *_below((), schema, schema["$defs"])]


def find_fields(fields: Sequence[Field], path: str) -> list[Field]:
    """Return the fields that end in a path such as `workers.members[].resources`, the one that is meant first.

    Raises UsageError with the nearest name where there is none.
    """
    names = tuple(re.sub(r"\[[^\]]*\]", "", path).strip(".").split(".")) if path else ()
    if found := _ending_in(fields, names):
        return found
    known = next((at for at in range(len(names) - 1, 0, -1) if _ending_in(fields, names[:at])), 0)
    parent = _ending_in(fields, names[:known])[0] if known else None
    allowed = [one.path[-1] for one in (below(fields, parent) if parent else fields) if one.path]
    where = f" in {parent.text}" if parent else ""
    word = re.compile(rf"(?i)\b{re.escape(names[known])}s?\b")
    mention = [] if parent else list(dict.fromkeys(
        ".".join(one.path[-2:]) for one in fields if word.search(f"{one.about} {one.mapping}")))
    listed = (f"fields{where}: {', '.join(allowed)}" if parent and allowed
              else f"fields that mention it: {some(mention)}" if mention else "`fleetctl explain` begins at the top")
    raise UsageError(f"there is no field {names[known]}{where}",
                     hint=did_you_mean(names[known], allowed) or listed)


def below(fields: Sequence[Field], parent: Field, *, all_levels: bool = False) -> list[Field]:
    """Return the fields of a mapping; with `all_levels` also those below them."""
    depth = len(parent.path)
    return [one for one in fields if one.path[:depth] == parent.path and len(one.path) > depth
            and (all_levels or len(one.path) == depth + 1)]


def _ending_in(fields: Sequence[Field], names: Names) -> list[Field]:
    meant = [home + names for home in HOMES]
    found = [one for one in fields if one.path[len(one.path) - len(names):] == names and (names or not one.path)]
    return sorted(found, key=lambda one: (meant.index(one.path) if one.path in meant else len(meant),
                                          one.path[:2] != HOMES[-1], len(one.path)))


def _below(path: Names, mapping: JsonSchema, definitions: JsonSchema) -> Iterator[Field]:
    for name, value in mapping["properties"].items():
        definition = definitions.get(definition_of(value) or "", {})
        default = default_words(value, required=name in mapping.get("required", ()))
        yield Field((*path, name), kind_words(value), default, value["description"], definition.get("description", ""))
        if definition:
            yield from _below((*path, name), definition, definitions)
