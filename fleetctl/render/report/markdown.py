"""A report as GitHub-flavored Markdown for a comment: totals first, never longer than a forge allows.

The first line is a hidden marker, by which a later run finds its own comment. If space is short, folded parts are
omitted first, then rows, then whole parts, and the end lists the omissions.

No text of the report can become markup. The only safe form is a code span: neither the parser nor a forge's
post-processing finds markup, mentions, references, links, emoji or formulas in it. So every name is a code span, and so
is every word of a sentence that is more than letters, a number and punctuation. Pipes are entities outside the span,
because parsers disagree about backslashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import accumulate, takewhile
from urllib.parse import quote

from fleetctl.documents.quantity import count_of
from fleetctl.render.report.model import Column, Report, Table
from fleetctl.render.visible import cut, cut_visible, visible

BUDGET = 60_000
"""GitHub accepts 65,536 characters in a comment; the rest is for text that a caller adds."""

NOTICE_ROOM = 2_000
"""Characters reserved for the sentence that lists the omissions."""

TITLE_LIMIT = 200
LABEL_LIMIT = 80
AROUND = 60
"""Characters reserved around a part: blank lines, and the line with the number of omitted rows."""
MOST_IN_BRACKETS = 40
TEXT_LIMIT = 500
"""The longest text, in characters; many longer ones would displace the rest of the report."""
_PLAIN = re.compile(r"\(?(?:[A-Za-z]+(?:['-][A-Za-z]+)*|[0-9]+(?:\.[0-9]+)?[A-Za-z]{0,3}%?)[.,;:]?\)?[.,;:]?")
_AROUND = re.compile(r"(\(?)(.*[^.,;:)])(\)*[.,;:]?)")
_COMMAND = re.compile(r"`([^`]+)`([.,;:]?)")
_LINKED = re.compile(r"\W*(?:[0-9a-f]{7,40}|www)\W*", re.IGNORECASE)
"""Words that forges turn into a link: a possible commit or host name."""


def render_markdown(report: Report, budget: int = BUDGET) -> str:
    """Return the report in at most `budget` UTF-16 units; 8,000 are enough for any report's fixed parts."""
    totals = [total for total in report.totals if total.shown]
    table = [[prose(total.label, LABEL_LIMIT) for total in totals], ["--:"] * len(totals),
             [str(total.count) for total in totals]]
    # the facts: a fold that gets room like an open part, as it is short and says what was judged
    facts = Table("fact", "Facts", (Column("name", ""), Column("value", "")), report.facts, folded=True)
    head = "\n\n".join([comment(f"fleetctl:{report.identity}"), f"## {prose(report.title, TITLE_LIMIT)}",
                        f"**{prose(report.conclusion)}**", "\n".join(map(_row, table))])
    sections = [*(_section(table, budget) for table in report.tables if "page" in table.readers),
             replace(_section(facts, budget), folded=False)]
    shown = fit(sections, budget - length(head) - NOTICE_ROOM)
    blocks = [section.text(rows) for section, rows in zip(sections, shown, strict=True) if rows is not None]
    return "\n\n".join([head, *blocks, *_omissions(sections, shown, budget)]) + "\n"


def _section(table: Table, budget: int) -> Section:
    title = prose(table.heading, LABEL_LIMIT)
    if table.counted:
        return Section(title, table.folded, table.rank, f"{len(table.rows)} {title}.", (), 0)
    opening = [f"### {title}"]
    if table.folded:
        opening = [f"<details><summary>{tagged(cut(table.heading, LABEL_LIMIT))} ({len(table.rows)})</summary>"]
    if table.note:
        opening.append(prose(table.note))
    if table.rows:
        heads = [prose(column.title, LABEL_LIMIT) for column in table.columns]
        sides = ["--:" if column.numeric else ":--" for column in table.columns]
        opening.append(f"{_row(heads)}\n{_row(sides)}")
    return Section(title, table.folded, table.rank, "\n\n".join(opening), tuple(_rows(table, budget)), len(table.rows),
                closing="\n\n</details>" if table.folded else "")


def _rows(table: Table, budget: int) -> Iterator[str]:
    for row in table.rows:
        cells = []
        for cell, column in zip(row, table.columns, strict=True):
            show = code if column.name else prose
            cells.append(show(cell) if isinstance(cell, str) else "<br>".join(map(show, cell)))
        text = _row(cells)
        yield text
        budget -= len(text)
        if budget < 0:
            return


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _omissions(sections: Sequence[Section], shown: Sequence[int | None], budget: int) -> list[str]:
    missing = []
    for section, rows in zip(sections, shown, strict=True):
        if rows is None or rows < section.count:
            count = section.count - (rows or 0)
            missing.append(f"{section.title} ({count_of(count, 'row')})" if count else section.title)
    if not missing:
        return []
    named = ", ".join(missing)
    if length(named) > NOTICE_ROOM - 300:
        named = count_of(len(missing), "part")
    where = "`--format json` has everything, and `--format html` shows it on a page."
    return [f"Left out to stay within {budget:,} characters: {named}. {where}"]


@dataclass(frozen=True, slots=True)
class Section:
    """One part; `title` names it if it is omitted. Folded parts with the highest `rank` are omitted first.

    `rows` may stop at the budget; `count` is the number of all rows.
    """

    title: str
    folded: bool
    rank: int
    opening: str
    rows: tuple[str, ...]
    count: int
    closing: str = ""

    def text(self, shown: int) -> str:
        """Return the part with its first `shown` rows, and the number of omitted rows."""
        more = self.count - shown
        return "\n".join([self.opening, *self.rows[:shown]]) + (f"\n\nand {more} more" if more else "") + self.closing

    def size(self) -> int:
        """Return the length with all rows, in UTF-16 units."""
        return self.frame() + sum(length(row) + 1 for row in self.rows)

    def frame(self) -> int:
        """Return the length without rows, in UTF-16 units."""
        return length(self.opening) + length(self.closing) + AROUND


def fit(sections: Sequence[Section], room: int) -> list[int | None]:
    """Return how many rows of each part fit in `room` characters in total; None = the part is omitted.

    Open parts share the room: small ones are shown whole, the others get equal shares of the rest. Room left over goes
    to parts that were cut, then to folded parts, by rank.
    """
    shown: list[int | None] = [None] * len(sections)
    taken = [0] * len(sections)
    by_rank = sorted(range(len(sections)), key=lambda number: (sections[number].folded, sections[number].rank))
    by_size = sorted((n for n in by_rank if not sections[n].folded), key=lambda number: sections[number].size())
    for done, number in enumerate(by_size):
        shown[number], taken[number] = _rows_in(sections[number], (room - sum(taken)) // (len(by_size) - done))
    for number in by_rank:
        shown[number], taken[number] = _rows_in(sections[number], room - sum(taken) + taken[number])
    return shown


def _rows_in(section: Section, room: int) -> tuple[int | None, int]:
    """Return how many rows fit in `room`, and the length used; a part that has rows is shown with at least one."""
    sizes = list(accumulate((length(row) + 1 for row in section.rows), initial=section.frame()))
    rows = sum(1 for _ in takewhile(lambda size: size <= room, sizes)) - 1
    return (rows, sizes[rows]) if rows > 0 or (rows == 0 and not section.rows) else (None, 0)


def code(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return a name as code that shows exactly these characters, invisible ones as escapes such as `\\x1b`."""
    return "&#124;".join(_span(part) for part in cut_visible(text, limit).split("|"))


def prose(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return a sentence in which every word that a parser or a forge could interpret is code."""
    shown = cut_visible(text, limit)
    if shown != " ".join(shown.split()):
        return code(shown, len(shown))
    return " ".join(word if _is_plain(word) else _quoted(word) for word in _words(shown))


def _words(text: str) -> Iterator[str]:
    """Yield the words of a sentence.

    One word is also a name whose brackets have blanks inside, such as `in(a, b)`, and a command in backticks.
    """
    words = text.split(" ")
    while words:
        open_brackets, many = 0, 1
        if words[0].startswith("`"):
            many = next((count for count in range(1, len(words) + 1) if _COMMAND.fullmatch(" ".join(words[:count]))), 1)
        elif not _is_plain(words[0]):
            for count, word in enumerate(words[:MOST_IN_BRACKETS], 1):
                inside = word.removeprefix("(") if count == 1 else word
                open_brackets += sum(map(inside.count, "([{")) - sum(map(inside.count, ")]}"))
                if open_brackets <= 0:
                    many = count
                    break
        yield " ".join(words[:many])
        del words[:many]


def tagged(text: str) -> str:
    """Return text for use between HTML tags on one line, where Markdown does not apply."""
    shown = cut_visible(text, TEXT_LIMIT)
    return shown if all(map(_is_plain, shown.split(" "))) else f"<code>{escape(shown)}</code>"


def comment(text: str) -> str:
    """Return a hidden comment, always the same for the same text; the text cannot end it."""
    return f"<!-- {quote(visible(text), safe=':/')[:TEXT_LIMIT]} -->"


def length(text: str) -> int:
    """Return the length of a text as forges count it: in UTF-16 units, at least one per character."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _is_plain(word: str) -> bool:
    return bool(_PLAIN.fullmatch(word)) and not _LINKED.fullmatch(word)


def _quoted(word: str) -> str:
    """Return a word as code, without the punctuation of the sentence around it, or the backticks of a command."""
    if command := _COMMAND.fullmatch(word):
        return f"{code(command[1], len(command[1]))}{command[2]}"
    match = _AROUND.fullmatch(word)
    before, inside, after = match.groups() if match else ("", word, "")
    while after.startswith(")") and inside.count("(") > inside.count(")"):  # it closes one of the word itself
        inside, after = f"{inside})", after[1:]
    return f"{before}{code(inside, len(inside))}{after}"


def _span(text: str) -> str:
    if not text:
        return ""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text[0] == "`" or text[-1] == "`" or (text[0] == text[-1] == " " and text.strip(" ")) else ""
    return f"{fence}{pad}{text}{pad}{fence}"
