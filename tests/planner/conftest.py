"""Fixtures for tests of plans."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleetctl.planner.placement.reasons import remedies


@pytest.fixture(scope="module")
def few_trials() -> Iterator[None]:
    """Try one remedy of a plan, and estimate the others.

    A plan makes up to 20 plans to say which nodes would help. That is most of its time, and random tests of the places
    do not look at it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remedies, "MOST_TRIALS", 1)
        yield
