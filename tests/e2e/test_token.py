"""A cluster that wants a token: nothing works without it, everything works with it, and it is shown to nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster import running_cluster
from conftest import World, member, model

pytestmark = pytest.mark.ray

TOKEN = "0123456789abcdef0123456789abcdef"


def test_a_cluster_with_a_token_is_read_and_applied_to_with_it_alone(tmp_path: Path) -> None:
    with running_cluster(tmp_path, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN) as cluster:
        world = World(cluster, tmp_path)
        world.write(model("one", 1, member("--plain", gpus=0)))
        try:
            refused = world.apply()
            assert refused.returncode == 1
            assert "401" in refused.stderr
            assert "RAY_AUTH_TOKEN" in refused.stderr

            world.env["RAY_AUTH_TOKEN"] = "wrong" * 8
            wrong = world.apply()
            assert wrong.returncode == 1
            assert "403" in wrong.stderr

            world.env["RAY_AUTH_TOKEN"] = TOKEN
            done = world.apply_result()
            assert done["exitCode"] == 0
            [ready] = done["outcomes"]
            assert not [name for name in world.ask(ready) if name.startswith("RAY_")]
            status = world.run("status", "--format", "json")
            assert [row["state"] for row in json.loads(status.stdout)["replicas"]] == ["ALIVE"]
            log = world.run("logs", "one/0")
            assert "says hello" in log.stdout
            assert world.run("evict", "one/0", "--yes").returncode == 0
            for shown in (refused, wrong, status, log):
                assert TOKEN not in shown.stdout + shown.stderr
        finally:
            cluster.sweep(namespaces=[world.fleet])
