"""The one place that turns the result of a plan into an exit code; text, JSON and process all use it."""

from __future__ import annotations

NOTHING_TO_DO = 0
CHANGES = 2
PARTIAL = 3
REFUSED = 4


def detailed_exit_code(*, actions: int, blocked: int, refused: int) -> int:
    """Return 4 if a policy refuses the plan, else 3 if anything is blocked, else 2 if there are actions, else 0.

    `refused` = the number of policy findings that are not lifted.
    """
    if refused:
        return REFUSED
    if blocked:
        return PARTIAL
    return CHANGES if actions else NOTHING_TO_DO
