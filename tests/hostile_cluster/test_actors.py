"""A slice of `make hostile-cluster`: some clusters full of lies, and the programs that this machine has."""

from __future__ import annotations

import pytest
from random_cases import cases

from tests.hostile_cluster import actors


@pytest.mark.slow
def test_lying_actors_get_no_requests_and_move_no_model() -> None:
    found = actors.run(cases(60), seed=1)
    assert found["failures"] == []
    assert found["refused"]
    assert found["endpoints"]
