"""Ports on a real Ray: only an engine's own answers make it ready."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from e2e_world import ENGINE, World, member, model

from fleetctl.demo.lifecycle import free_port

pytestmark = pytest.mark.ray

LOADS_FIRST = ["sh", "-c", 'sleep 2; exec "$@"', "sh", sys.executable, ENGINE]


def test_of_two_replicas_with_one_port_on_one_node_one_is_ready_and_the_other_fails_with_the_reason(
    world: World
) -> None:
    """Without the check the second is reported ready because of the first one's answers, and later fails to bind."""
    port = free_port()
    one: dict[str, Any] = member(node="a")
    one["engine"] = {"command": LOADS_FIRST, "args": [str(port), "--plain"],
                     "readiness": {"http": {"path": "/health", "port": port}, "period": "200ms"}}
    world.write(model("fixed", 2, one))
    summary = world.apply_result()
    assert summary["exitCode"] == 3
    rows = sorted(summary["outcomes"], key=lambda row: row["outcome"])
    assert [row["outcome"] for row in rows] == ["failed", "ready"]
    assert rows[0]["code"] == "PORT_IN_USE"
    assert rows[0]["message"].startswith(f"port {port} ")
    assert "$(FLEETCTL_PORT)" in rows[0]["message"]
    [up] = world.actors().values()
    assert (up["state"], up["restarts"]) == ("ALIVE", 0)
