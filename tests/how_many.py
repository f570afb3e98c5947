"""How many random cases a test tries: FLEETCTL_TEST_CASES times the count in the test, a third if nothing is said.

`make test-fast` tries a fifth, `make test-thorough` eight times the count. The cases are the same in every run.
"""

from __future__ import annotations

import os

TIMES = float(os.environ.get("FLEETCTL_TEST_CASES", "0.33"))


def cases(count: int) -> int:
    """Return how many of `count` cases to try: at least one."""
    return max(1, round(count * TIMES))
