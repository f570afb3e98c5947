"""The digest of a cluster changes with exactly the fields that can change a plan."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Plan
from fleetctl.watch.watcher import cluster_digest
from tests.planner.short_forms import before, plan_for, short_failure, short_fleet, short_inventory

GIB = 1 << 30
NODES = [{"name": "a", "gpus": 2, "vram": "80Gi", "share": {0: 1, 1: 0}, "measured": {0: 70 * GIB, 1: GIB // 2}},
         {"name": "spark", "gpus": 1, "vram": "128Gi", "unified": True, "measured": {0: 20 * GIB}}]
RUNS = {"model": "m", "id": 0, "node": "a", "hash": "h", "cards": [0], "ready": "50m"}
FAILED = {"model": "m", "hash": "h", "node": "a", "ago": "2m"}


def cluster(failures: int = 0, node: Any = (), card: Any = (), host: Any = (), **replica: Any) -> Inventory:
    """Two nodes and a replica; `card` = memory in use on node a, `host` = memory in use on spark, by card index."""
    nodes = [{**NODES[0], "measured": {**NODES[0]["measured"], **dict(card)}, **dict(node)},
             {**NODES[1], "measured": {**NODES[1]["measured"], **dict(host)}}]
    found = short_inventory({"nodes": nodes, "replicas": [RUNS], "failures": [FAILED] * failures})
    return found.model_copy(update={"replicas": [found.replicas[0].model_copy(update=replica)]})


def fleet(failures: int = 3) -> Any:
    return short_fleet({"models": [{"key": "m", "replicas": 2, "gpus": 1, "hash": "h"}],
                        "policy": {"cooldown": {"failures": failures}}})


def planned(failures: int, inventory: Inventory) -> Plan:
    return plan_for(fleet(failures), inventory)


@pytest.mark.parametrize(("threshold", "change"), [
    (0, {"failures": 5}), (3, {"failures": 2}), (3, {"card": {0: 75 * GIB}}), (3, {"host": {0: 23 * GIB}}),
    (3, {"tool_version": "0.1.0"}), (3, {"ready_at": before("1m")}), (3, {"since": before("1m"), "restarts": 1}),
], ids=["no cooldown", "too few failures", "a granted card", "memory of a host", "release", "ready", "restarted"])
def test_fields_that_affect_no_plan_do_not_change_the_digest(threshold: int, change: dict[str, Any]) -> None:
    now, then = cluster(**change), cluster()
    assert now != then
    assert planned(threshold, now).actions == planned(threshold, then).actions
    assert cluster_digest(fleet(threshold), now) == cluster_digest(fleet(threshold), then)


@pytest.mark.parametrize("change", [
    {"failures": 3}, {"card": {1: 9 * GIB}}, {"node": {"cordon": {"reason": "disk"}}}, {"state": "RESTARTING"},
    {"node": {"labels": {"fleet.io/pool": "big"}}}, {"node": {"share": {0: 1, 1: 1}}},
], ids=["cooldown", "a card in use", "cordon", "state", "labels", "a card is freed"])
def test_fields_that_may_affect_a_plan_change_the_digest(change: dict[str, Any]) -> None:
    assert cluster_digest(fleet(), cluster(**change)) != cluster_digest(fleet(), cluster())
    assert cluster_digest(fleet(), cluster().model_copy(update={"complete": False})) is None


@pytest.mark.parametrize("failures", [
    [{**FAILED, "model": key, "uuids": ["GPU-a-0"]} for key in "mno"], [{**FAILED, "reload": True}] * 3,
], ids=["a card", "reloads"])
def test_everything_that_cools_changes_the_digest(failures: list[dict[str, Any]]) -> None:
    failed = [short_failure(one).model_copy(update={"reload": one.get("reload", False)}) for one in failures]
    now = cluster().model_copy(update={"failures": failed})
    assert cluster_digest(fleet(), now) != cluster_digest(fleet(), cluster())


@pytest.mark.parametrize("field", ["nodes", "replicas"])
def test_an_added_or_removed_node_or_replica_changes_the_digest(field: str) -> None:
    then = cluster()
    now = then.model_copy(update={field: getattr(then, field)[1:]})
    assert cluster_digest(fleet(), now) != cluster_digest(fleet(), then)
