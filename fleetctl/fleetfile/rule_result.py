"""One result of house rules, as their process returns it; it imports nothing, so that the process starts quickly."""

from __future__ import annotations

from typing import NamedTuple

Steps = tuple[str | int, ...]
"""The keys and indices that lead to a value."""


class Result(NamedTuple):
    """A violation, or a problem of the schema. `path` leads to its place in the fleet, or if `in_schema` in the rules.

    `kind` = "broken", or why the rules cannot be used. `key` = the missing or extra key at the path; `message` = the
    schema's own description; `keyword` = the broken rule, and `allowed` = what it allows.
    """

    kind: str
    in_schema: bool = False
    path: Steps = ()
    key: str | None = None
    message: str | None = None
    keyword: str = ""
    allowed: str | None = None
