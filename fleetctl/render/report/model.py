"""The report: what any document says to a reviewer, before a format gives it a look.

Texts are as they came, not yet safe for anything: each format escapes for its own reader. Totals are taken from the
document once, so that no two formats can count differently. Formats for people (terminal, markdown, html) show the
tables, formats that point at lines (github, sarif, junit) the findings, and jsonl both: what matters is in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleetctl.documents.position import Position

Level = Literal["error", "warning", "notice"]
LEVELS: tuple[Level, ...] = ("error", "warning", "notice")

Reader = Literal["terminal", "page", "program"]
EVERYONE: frozenset[Reader] = frozenset(("terminal", "page", "program"))

UNBROKEN = frozenset({"code", "effect", "verdict", "state", "kind", "outcome", "severity", "level", "verb", "startedAt",
                      "time", "url"})
"""Keys of columns of single words, which are not to be broken."""

SEE_BELOW = ", see below"
"""The end of a part of a text that another table says in full."""

Cell = str | tuple[str, ...]
"""One text, or several, one below the other."""
Tone = Literal["good", "bad", "warn", "soft", "calm", ""]
COUNT_TONES: dict[str, Tone] = {
    **dict.fromkeys(("create", "additive", "ready", "ok"), "good"),
    **dict.fromkeys(("blocked", "failed", "errors", "unknown", "missing"), "bad"),
    **dict.fromkeys(("hold", "held", "restarting", "outdated", "drift", "lost", "partial", "warnings"), "warn"),
}
"""The tone of a count that is not zero, by the key of its total or column."""
TEXT_TONES: dict[str, Tone] = {
    **dict.fromkeys(("+", "additive", "ready", "gone", "ok"), "good"),
    **dict.fromkeys(("!", "refused", "error", "failed", "unknown", "blocked", "lost", "dead", "never constructed",
                     "DEAD"), "bad"),
    **dict.fromkeys(("~", "*", "drift", "warning", "partial", "restarting", "outdated", "skipped", "draining",
                     "DRAINING"), "warn"),
    **dict.fromkeys(("-", "starting", "running", "held", "gone"), "calm"),
    "=": "soft",
}
"""The tone of a sign or of a word for a state."""


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
    """One count. `key` is as in the JSON document, `label` reads after the number: "to create".

    `quiet` = a zero of it says nothing to a person.
    """

    key: str
    label: str
    count: int
    quiet: bool = False

    @property
    def shown(self) -> bool:
        """Whether people see it at once."""
        return bool(self.count) or not self.quiet


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. `key` is what jsonl calls it; `numeric` = numbers, `name` = names, such as model keys.

    `terminal`: a column that goes `beside` the others is below one of them where a terminal is narrow; that and a
    column that is shown `filled`, on a page as well, are left out where all of it is empty.
    """

    key: str
    title: str
    numeric: bool = False
    name: bool = False
    terminal: Literal["always", "filled", "beside", "never"] = "always"

    @property
    def unbroken(self) -> bool:
        """Whether its texts are numbers or single words."""
        return self.numeric or self.key in UNBROKEN


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts; every row has a cell per column. `key` is the type of its rows in jsonl: "model".

    `meaning` explains the title, `note` is a sentence to the rows. `folded` = details that are not shown at once; where
    space is short they go first, the highest `rank` before all. `counted` = people see only how many rows there are, as
    "12 models with nothing to do", which `title` reads after the number. `readers` = whom it is for.

    In a terminal it is a grid; from a width of `beside_from` on it has room for the columns that go beside the others.
    With a `line` it is a title and a line per row: "{model}: {message}" names columns, `signs` has a sign for each row.
    At most `most` rows are shown. Where a terminal is narrow, a part of a cell (parts end with "; ") that is one of
    `said`, which names columns, is left out, and so is one that ends with SEE_BELOW.
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
    most: int | None = None
    beside_from: int = 110
    meaning: str = ""
    said: str = ""

    @property
    def heading(self) -> str:
        """The title with what it means: "Lost: cannot serve, not counted"."""
        return f"{self.title}: {self.meaning}" if self.meaning else self.title


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report. `identity` names what it is about across runs, as `plan:prod`; `subjects` is every model.

    `conclusion` is one sentence, the last line in a terminal, below the `notes`; its first lines are the `heading`.
    `exit_code` is the detailed one. `file` is the fleet file that a finding without a place is about, for formats that
    must point at one; "" = none.
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
    """Return the findings errors first, else in their order."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def count_tone(key: str, count: int) -> Tone | Literal["zero"]:
    """Return the tone of a count, "" where it is no better or worse than any other."""
    return COUNT_TONES.get(key, "") if count else "zero"


def text_tone(text: str) -> Tone:
    """Return the tone of a sign or state; of several, as in `ready, outdated`, that of the last one that has a tone."""
    words = (word.partition(" (")[0].rstrip() for word in reversed(text.split(", ")))
    return next((TEXT_TONES[word] for word in words if word in TEXT_TONES), "")
