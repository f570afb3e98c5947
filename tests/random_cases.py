"""How many random cases a test tries: its own count times FLEETCTL_TEST_CASES, by default a fifth.

`make test-fast` tries a tenth, `make test-thorough` eight times the count. The cases are the same in every run.
"""

from __future__ import annotations

import os

TIMES = float(os.environ.get("FLEETCTL_TEST_CASES", "0.2"))


def cases(count: int) -> int:
    """Return how many of `count` cases to try: at least one."""
    return max(1, round(count * TIMES))
