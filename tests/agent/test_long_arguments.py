"""Constructor arguments of an actor are split into parts short enough for Ray to keep."""

from __future__ import annotations

import os

import pytest

from fleetctl.agent.arguments import PART, from_parts, in_parts

RAY_KEEPS = 100 << 10


@pytest.mark.parametrize("size", [0, 100, PART, 400_000])
def test_every_part_is_short_enough_for_ray_and_nothing_is_lost(size: int) -> None:
    replica = {"model": "m", "members": [{"engine": {"env": {"TEXT": os.urandom(size).hex()}}, "rank": 0}]}
    parts = in_parts(replica)
    assert max(map(len, parts)) < RAY_KEEPS
    assert from_parts(parts) == replica
