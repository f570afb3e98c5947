"""Which parts of a report are shown where space is short: folded ones go first, then rows, then whole parts.

Nothing here knows Markdown: a part is an opening, rows and a closing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

from fleetctl.render.report.markdown_text import length

AROUND = 60
"""Room around a part: blank lines, and the line that says how many rows are missing."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part; `title` names it where it is left out. Of folded parts the highest rank goes first.

    `rows` may end where they are longer than any room; `count` is the number of all of them.
    """

    title: str
    folded: bool
    rank: int
    opening: str
    rows: tuple[str, ...]
    count: int
    closing: str = ""

    def text(self, shown: int) -> str:
        """Return the part with its first `shown` rows, and the number of the others."""
        more = self.count - shown
        return "\n".join([self.opening, *self.rows[:shown]]) + (f"\n\nand {more} more" if more else "") + self.closing

    def needs(self) -> int:
        """Return the characters it takes whole."""
        return self.frame() + sum(length(row) + 1 for row in self.rows)

    def frame(self) -> int:
        """Return the characters it takes beside its rows."""
        return length(self.opening) + length(self.closing) + AROUND


def fit(parts: Sequence[Part], room: int) -> list[int | None]:
    """Return how many rows of each part are shown in `room` characters in all; None = nothing of it.

    Open parts share the room: the small ones are whole, the others get equal parts of the rest. What they leave goes to
    those that were cut, and then to the folded ones, by rank.
    """
    shown: list[int | None] = [None] * len(parts)
    taken = [0] * len(parts)
    by_rank = sorted(range(len(parts)), key=lambda number: (parts[number].folded, parts[number].rank))
    shares = sorted((n for n in by_rank if not parts[n].folded), key=lambda number: parts[number].needs())
    for place, number in enumerate(shares):
        shown[number], taken[number] = _rows_in(parts[number], (room - sum(taken)) // (len(shares) - place))
    for number in by_rank:
        shown[number], taken[number] = _rows_in(parts[number], room - sum(taken) + taken[number])
    return shown


def _rows_in(part: Part, room: int) -> tuple[int | None, int]:
    """Return how many rows are shown in `room` and what they take; a part with rows is not shown without one."""
    sizes = list(accumulate((length(row) + 1 for row in part.rows), initial=part.frame()))
    rows = sum(1 for _ in takewhile(lambda size: size <= room, sizes)) - 1
    return (rows, sizes[rows]) if rows > 0 or (rows == 0 and not part.rows) else (None, 0)
