"""A slice of `make hostile-cluster`: some hundred connections that never end."""

from __future__ import annotations

import pytest
from random_cases import cases

from tests.hostile_cluster import connections


@pytest.mark.slow
def test_a_weights_port_and_a_watch_go_on_answering_beside_connections_that_never_end() -> None:
    found = connections.run(cases(60), seed=1)
    assert found["failures"] == []
    assert found["connections"]
