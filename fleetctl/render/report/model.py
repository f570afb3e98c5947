"""The report: what any document says to a reviewer, before a format gives it a look.

Texts are as they came, not yet safe for anything: each format escapes for its own reader. Totals are taken from the
document once, so that no two formats can count differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleetctl.documents.position import Position

Level = Literal["error", "warning", "notice"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to be seen. `code` is stable, as INSUFFICIENT_GPU; `subject` is a model key or what it is about."""

    level: Level
    code: str
    subject: str
    message: str
    place: Position | None = None
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Total:
    """One count. `key` is as in the JSON document, `label` reads after the number: "to create"."""

    key: str
    label: str
    count: int


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    title: str
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts. `folded` = details that are not shown at once; `rank` 0 is the last to go where space is short.

    `left_out` rows are in the document but not here.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    folded: bool = False
    rank: int = 1
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report. `identity` names what it is about across runs, as `plan:prod`; `subjects` is every model."""

    kind: Literal["plan", "diff", "apply", "history"]
    identity: str
    title: str
    verdict: str
    facts: tuple[tuple[str, str], ...]
    totals: tuple[Total, ...]
    tables: tuple[Table, ...]
    findings: tuple[Finding, ...]
    subjects: tuple[str, ...]
    exit_code: int
