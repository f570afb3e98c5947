"""How many random cases a test tries: the count in the test, FLEETCTL_TEST_CASES times as many (`make test`: 1).

`make test-thorough` tries eight times as many, `make test-fast` a fifth. The cases are the same in every run.
"""

from __future__ import annotations

import os

TIMES = float(os.environ.get("FLEETCTL_TEST_CASES", "1"))


def cases(count: int) -> int:
    """Return how many of `count` cases to try: at least one."""
    return max(1, round(count * TIMES))
