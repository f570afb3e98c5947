"""The report: the content of any document for a reviewer, before a format renders it.

Texts are not escaped yet: each format escapes for its own reader. Totals are taken from the document once, so that no
two formats can count differently. Formats for people (terminal, markdown, html) show the tables, formats that point at
lines (github, sarif, junit) show the findings, and jsonl has both. Everything important is in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleetctl.documents.position import Position

Level = Literal["error", "warning", "notice"]
LEVELS: tuple[Level, ...] = ("error", "warning", "notice")

Reader = Literal["terminal", "page", "program"]
EVERYONE: frozenset[Reader] = frozenset(("terminal", "page", "program"))
TERMINAL: frozenset[Reader] = frozenset({"terminal"})
NOT_TERMINAL = EVERYONE - TERMINAL

UNBROKEN = frozenset({"code", "effect", "verdict", "state", "kind", "outcome", "severity", "level", "verb", "startedAt",
                      "time", "url"})
"""Keys of columns of single words, which must not wrap."""

SEE_BELOW = ", see below"
"""The end of a text that another table shows in full."""

Cell = str | tuple[str, ...]
"""One text, or several lines."""
Tone = Literal["good", "bad", "warn", "soft", "calm", ""]
COUNT_TONES: dict[str, Tone] = {
    **dict.fromkeys(("create", "additive", "ready", "ok"), "good"),
    **dict.fromkeys(("blocked", "failed", "errors", "unknown", "missing", "not ready", "not_ready"), "bad"),
    **dict.fromkeys(("hold", "held", "restarting", "outdated", "drift", "lost", "partial", "warnings"), "warn"),
}
"""The tone of a count that is not zero, by the key of its total or column."""
TEXT_TONES: dict[str, Tone] = {
    **dict.fromkeys(("+", "additive", "ready", "ok"), "good"),
    **dict.fromkeys(("!", "refused", "error", "failed", "unknown", "blocked", "lost", "dead", "not ready",
                     "never constructed", "DEAD"), "bad"),
    **dict.fromkeys(("~", "*", "drift", "warning", "partial", "restarting", "outdated", "skipped", "draining",
                     "DRAINING"), "warn"),
    **dict.fromkeys(("-", "starting", "running", "held", "gone"), "calm"),
    "=": "soft",
}
"""The tone of a sign or a state."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `code` is stable, such as INSUFFICIENT_GPU; `subject` is a model key or another name.

    `source` is the line to point at, None if there is none. `details` are further lines below the message.
    """

    level: Level
    code: str
    subject: str
    message: str
    source: Position | None = None
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Total:
    """One count. `key` is as in the JSON document, `label` reads after the number: "to create".

    `quiet` = a zero is not worth showing.
    """

    key: str
    label: str
    count: int
    quiet: bool = False

    @property
    def shown(self) -> bool:
        """Whether it is shown without unfolding."""
        return bool(self.count) or not self.quiet


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. `key` is its key in jsonl; `numeric` = numbers, `name` = names, such as model keys.

    `terminal`: in a narrow terminal a `beside` column moves below another column. Empty `beside` columns are omitted;
    so are empty `filled` columns, on a page too. `news` = a change of it alone is worth a line of `status --follow`.
    """

    key: str
    title: str
    numeric: bool = False
    name: bool = False
    terminal: Literal["always", "filled", "beside", "never"] = "always"
    news: bool = True

    @property
    def unbroken(self) -> bool:
        """Whether its texts are numbers or single words, which must not wrap."""
        return self.numeric or self.key in UNBROKEN


MODEL = Column("model", "model", name=True)
REPLICA = Column("replica", "replica", name=True)
VARIANT = Column("variant", "variant", name=True, terminal="beside")
CODE = Column("code", "code", name=True)
WHY = Column("message", "why")
"""Columns of many tables."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts; every row has a cell per column. `key` is the type of the rows in jsonl, such as "model".

    `meaning` explains the title, `note` is a sentence about the rows. `folded` = details that are folded at first; if
    space is short they are omitted first, the highest `rank` before others. `counted` = formats for people show only
    the number of rows, followed by the title: "12 models with nothing to do". `readers` = the formats that show it.

    In a terminal it is a grid; `beside` columns fit from a width of `beside_from`. With a `line` it is a title and a
    line per row: "{model}: {message}" names columns, `signs` has the sign of each row. At most `limit` rows are shown.
    In a narrow terminal some parts of a cell, which are separated by "; ", are omitted: those equal to a part of
    `redundant`, a template that names columns, and those that end with SEE_BELOW.
    """

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False
    counted: bool = False
    rank: int = 1
    note: str = ""
    readers: frozenset[Reader] = EVERYONE
    line: str = ""
    signs: tuple[str, ...] = ()
    limit: int | None = None
    beside_from: int = 110
    meaning: str = ""
    redundant: str = ""

    @property
    def heading(self) -> str:
        """The title and its meaning: "Lost: cannot serve, not counted"."""
        return f"{self.title}: {self.meaning}" if self.meaning else self.title


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report. `identity` is stable across runs, such as `plan:prod`; `subjects` are all models.

    In a terminal the `heading` comes first, then the tables, the `notes`, and the `conclusion`, one sentence.
    `exit_code` is the detailed one. `file` is the fleet file for findings without a line, in formats that require a
    file; "" = none.
    """

    kind: Literal["plan", "diff", "apply", "history", "problems", "watch", "answer"]
    title: str
    conclusion: str
    tables: tuple[Table, ...]
    identity: str = ""
    fleet: str = ""
    heading: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    totals: tuple[Total, ...] = ()
    findings: tuple[Finding, ...] = ()
    subjects: tuple[str, ...] = ()
    exit_code: int = 0
    file: str = ""


def by_level(findings: tuple[Finding, ...]) -> list[Finding]:
    """Return the findings sorted by level, errors first, otherwise in order."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def count_tone(key: str, count: int) -> Tone | Literal["zero"]:
    """Return the tone of a count; "" for a neutral one."""
    return COUNT_TONES.get(key, "") if count else "zero"


def text_tone(text: str) -> Tone:
    """Return the tone of a sign or state; for several, such as `ready, outdated`, the tone of the last that has one."""
    words = (word.partition(" (")[0].rstrip() for word in reversed(text.split(", ")))
    return next((TEXT_TONES[word] for word in words if word in TEXT_TONES), "")
