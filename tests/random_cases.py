"""How many random cases a test tries: its own count times FLEETCTL_TEST_CASES, by default a third.

`make test-fast` tries a fifth, `make test-thorough` eight times the count. The cases are the same in every run.
"""

from __future__ import annotations

import os

TIMES = float(os.environ.get("FLEETCTL_TEST_CASES", "0.33"))


def cases(count: int) -> int:
    """Return how many of `count` cases to try: at least one."""
    return max(1, round(count * TIMES))
