"""The one place that turns what a plan found into an exit code; text, JSON and process all use it."""

from __future__ import annotations

NOTHING_TO_DO = 0
CHANGES = 2
PARTIAL = 3


def detailed_exit_code(*, actions: int, blocked: int) -> int:
    """Return 3 when anything is blocked, else 2 when there are actions, else 0."""
    if blocked:
        return PARTIAL
    return CHANGES if actions else NOTHING_TO_DO
