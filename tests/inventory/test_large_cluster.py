"""A cluster with more actors than a list returns: inventory and plan are complete at little extra cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_dashboard import recorded_bodies

from tests.benchmarks.large.cluster import LargeCluster
from tests.benchmarks.large.dashboard import Rendered, serve
from tests.benchmarks.large_cluster import CLUSTERS, check_inventory, check_plan, dashboard, measured, with_hashes

pytestmark = pytest.mark.slow

CUT = replace(CLUSTERS["small"], foreign=300, named=150, groups=120, limit=100)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "FLEETCTL_ADDRESS", "FLEETCTL_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


def test_inventory_and_plan_are_complete_when_lists_are_cut(tmp_path: Path):
    fleet = tmp_path / "fleet.yaml"
    cluster = with_hashes(CUT, fleet)
    with serve(cluster) as (url, requested):
        _, inventory = measured(["inventory", "--address", url, "--format", "json"], tmp_path)
        check_inventory(cluster, inventory)
        assert any("was cut: " in warning for warning in inventory["warnings"])
        _, plan = measured(["plan", "--address", url, "-f", str(fleet), "--format", "json"], tmp_path)
        check_plan(cluster, plan)
    assert "/logical/actors" in requested
    assert "/api/v0/placement_groups" not in requested, "former groups of others must cost nothing"


def test_foreign_actors_take_little_memory(tmp_path: Path):
    peaks = []
    for cluster in (CLUSTERS["small"], replace(CLUSTERS["small"], foreign=12_000)):
        with dashboard(cluster) as url:
            cost, inventory = measured(["inventory", "--address", url, "--format", "json"], tmp_path)
        check_inventory(cluster, inventory)
        peaks.append(cost.peak_mib)
    assert peaks[1] - peaks[0] < 40


@pytest.mark.parametrize(("path", "query", "part"), [
    ("/api/v0/nodes", {}, "nodes"),
    ("/api/v0/actors", {"filter_values": "ALIVE"}, "actors_alive"),
    ("/api/v0/actors", {"filter_values": "PENDING_CREATION"}, "actors_pending_creation"),
])
def test_the_stand_in_answers_with_the_fields_recorded_from_ray(path: str, query, part: str):
    body = Rendered(LargeCluster(nodes=2, models=1, foreign=3, starting=2)).answer(path, query)
    assert body is not None
    ours, theirs = json.loads(body)["data"]["result"], recorded_bodies()[part]["data"]["result"]
    assert ours.keys() == theirs.keys()
    assert {frozenset(row) for row in ours["result"]} == {frozenset(row) for row in theirs["result"]}
