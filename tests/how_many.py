"""How many random cases a test tries: what is written there, or FLEETCTL_TEST_CASES times as many.

`make test` tries the least that has found what there was to find, and the same in every run; `make test-thorough` tries
eight times as many.
"""

from __future__ import annotations

import os

TIMES = int(os.environ.get("FLEETCTL_TEST_CASES", "1"))


def cases(count: int) -> int:
    """Return how many there are to be of `count`."""
    return count * TIMES
