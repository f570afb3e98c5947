"""The report: what any document says to a reviewer, before a format gives it a look.

Texts are as they came, not yet safe for anything: each format escapes for its own reader. Totals are taken from the
document once, so that no two formats can count differently. People's formats (markdown, html) show the tables, formats
that point at lines (github, sarif, junit) the findings, and jsonl both: what matters stands in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleetctl.documents.position import Position

Level = Literal["error", "warning", "notice"]
LEVELS: tuple[Level, ...] = ("error", "warning", "notice")

Cell = str | tuple[str, ...]
"""One text, or several that stand below one another."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to be seen. `code` is stable, as INSUFFICIENT_GPU; `subject` is a model key or what it is about.

    `place` is the line to point at; None = there is none. `details` are further lines below the message.
    """

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
    """One column of a table. `key` is what jsonl calls it; `numeric` = numbers, `name` = names, such as model keys."""

    key: str
    title: str
    numeric: bool = False
    name: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts; every row has a cell per column. `key` is the type of its rows in jsonl: "model".

    `folded` = details that are not shown at once; where space is short they go first, the highest `rank` before all.
    `counted` = people are told only how many rows there are, as "12 models with nothing to do", which `title` reads
    after the number. `note` is a sentence to the rows. Titles and notes are our own words, never text from outside.
    """

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False
    counted: bool = False
    rank: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report. `identity` names what it is about across runs, as `plan:prod`; `subjects` is every model.

    `verdict` is one sentence, the last line of the document's table. `exit_code` is the detailed one. `file` is the
    fleet file that a finding without a place is about, for formats that must point at one; "" = none.
    """

    kind: Literal["plan", "diff", "apply", "history", "problems"]
    identity: str
    fleet: str
    title: str
    verdict: str
    facts: tuple[tuple[str, str], ...]
    totals: tuple[Total, ...]
    tables: tuple[Table, ...]
    findings: tuple[Finding, ...]
    subjects: tuple[str, ...]
    exit_code: int
    file: str = ""


def by_level(findings: tuple[Finding, ...]) -> list[Finding]:
    """Return the findings errors first, else in their order."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))
