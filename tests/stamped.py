"""The text of an engine's log, with the stamps that its guard writes."""

from __future__ import annotations


def stamped(*lines: tuple[int, str], before: int = 0) -> str:
    """Return lines, each with its second after 12 o'clock; `before` = the number of earlier lines."""
    return "".join(f"2026-03-04T12:{second // 60:02}:{second % 60:02}.000Z#{before + place} {text}\n"
                   for place, (second, text) in enumerate(lines))
