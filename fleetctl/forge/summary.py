"""A summary page has a largest size; a longer text is cut where nothing breaks."""

from __future__ import annotations

import re

NOTE = "\n*The rest of this page is left out: it would not fit. The reports of this run have all of it.*\n"
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def fit(markdown: str, room: int) -> str:
    """Return as much of `markdown` as `room` bytes hold, cut before a block, with open folds closed and a note.

    Returns "" where not even the note has room.
    """
    if len(markdown.encode()) <= room:
        return markdown
    room -= len(NOTE.encode())
    best = "" if room >= 0 else None
    text: list[str] = []
    used, fence, folds = 0, "", 0
    for line in markdown.splitlines(keepends=True):
        closing = "</details>\n" * folds
        if not line.strip() and not fence and used + len(closing.encode()) <= room:
            best = "".join(text) + closing
        fence, folds = _after(line, fence, folds)
        text.append(line)
        used += len(line.encode())
        if used > room:
            break
    return best + NOTE if best is not None else ""


def _after(line: str, fence: str, folds: int) -> tuple[str, int]:
    """Return the open fence ("" = none) and how many folds are open after this line."""
    mark = FENCE.match(line)
    if fence:
        return ("" if mark and line.strip() == mark[1] and mark[1].startswith(fence) else fence), folds
    if mark:
        return mark[1], folds
    return "", max(0, folds + line.count("<details") - line.count("</details>"))
