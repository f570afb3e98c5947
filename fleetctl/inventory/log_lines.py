"""The lines of an engine's log: the time and number in their stamps, and which of them are new.

The guard beside an engine writes the stamps (agent/supervisor.py). The log of an earlier agent has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)#(\d+) ")


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its stamp and its end.

    `time` never falls within a log; without a stamp it is that of the line before, "" = not known. `number` counts from
    1 all lines that the log ever had; None = no stamp.
    """

    time: str
    number: int | None
    text: bytes


def lines_of(data: bytes, *, whole: bool) -> tuple[list[Line], bool]:
    """Return the lines, and whether their numbers are exact; `whole` = the log begins here.

    Lines that came at once have one stamp. Where a log is cut among them, the next stamp says how many there were.
    """
    lines: list[Line] = []
    time, number, stamp, second = "", 0, b"", None
    for text in data.removesuffix(b"\n").split(b"\n") if data else ():
        found = _STAMP.match(text)
        if found is None:
            lines.append(Line(time, None, text))
            continue
        if found[0] != stamp:
            if stamp and second is None:
                second = len(lines)
            stamp, number = found[0], int(found[2])
        time, number = max(time, found[1].decode()), number + 1
        lines.append(Line(time, number, text[found.end():]))
    if whole or not stamp:
        return lines, True
    if second is None:
        return lines, False
    first = [place for place in range(second) if lines[place].number is not None]
    base = (lines[second].number or 0) - len(first)
    for count, place in enumerate(first):
        lines[place] = replace(lines[place], number=max(base + count, 1))
    return lines, True


def first_number(lines: Iterable[Line]) -> int | None:
    """Return the lowest number that is known, of the first line with a stamp."""
    return next((line.number for line in lines if line.number is not None), None)


def after(seen: Sequence[Line], lines: Sequence[Line]) -> tuple[list[Line], int | None]:
    """Return the lines that follow those `seen` last, and how many are missing between them; None = not known."""
    if not seen:
        return list(lines), 0
    last = seen[-1]
    if last.number is None or not lines or lines[-1].number is None:
        known = _overlap([line.text for line in seen], [line.text for line in lines])
        return list(lines[known:]), 0 if known or not lines else None
    for place in range(len(lines) - 1, -1, -1):
        if lines[place].number == last.number and lines[place].text == last.text:
            return list(lines[place + 1:]), 0
    new = [line for line in lines if line.number is None or line.number > last.number or line.time > last.time]
    return new, max((first_number(new) or 0) - last.number - 1, 0)


def _overlap(seen: Sequence[bytes], texts: Sequence[bytes]) -> int:
    """Return how many of `texts` are known: they end as `seen` does. Lines that repeat may be taken for known."""
    for known in range(len(texts), 0, -1):
        part = texts[max(0, known - len(seen)):known]
        if part == seen[-len(part):]:
            return known
    return 0
