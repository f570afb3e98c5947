"""A fleet on Ray's own autoscaler: new nodes are planned, requested, awaited and used."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster import RayCluster, eventually, running_cluster
from e2e_world import World, member, model

pytestmark = pytest.mark.ray


@pytest.fixture
def autoscaling_cluster(tmp_path: Path) -> Iterator[RayCluster]:
    with running_cluster(tmp_path, "autoscaling_keeper.py") as cluster:
        yield cluster


def write(world: World, replicas: int, most: int = 2) -> None:
    world.write(model("m", replicas, member(gpus=2)))
    document = yaml.safe_load(world.file.read_text())
    node = {"gpus": 2, "cpus": 1, "memory": "1Gi", "labels": {"fleet.io/pool": "big"}}
    document["spec"]["cluster"] = {"grow": [{"name": "big", "node": node, "max": most}]}
    world.file.write_text(yaml.safe_dump(document))


def test_nodes_are_added_for_replicas_that_fit_nowhere_and_stay_while_they_run(
    autoscaling_cluster: RayCluster, tmp_path: Path
) -> None:
    world = World(autoscaling_cluster, tmp_path)
    write(world, 3)
    plan = world.plan()
    assert plan["actions"] == []
    assert [(one["name"], one["nodes"], one["replicas"]) for one in plan["growth"]] == [
        ("big", 2, [{"model": "m", "count": 2}])]
    assert [(row["code"], row["replicas"]) for row in plan["blocked"]] == [("WAITS_FOR_NODES", 3)]
    assert autoscaling_cluster.big_nodes() == [], "a plan requests no nodes"

    done = world.apply("--wait-for-nodes", "240s", "--format", "jsonl")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 3, done.stderr
    assert [event["seq"] for event in events] == sorted({event["seq"] for event in events})
    assert sorted((row["outcome"], row["code"] if row["outcome"] == "blocked" else row["replicaId"])
                  for row in events[-1]["outcomes"]) == [("blocked", "MAX_NODES"), ("ready", 0), ("ready", 1)]
    before = world.actors()
    assert sorted(row["node"] for row in before.values()) == autoscaling_cluster.big_nodes()

    write(world, 1)
    assert world.apply().returncode == 0
    assert world.actors() == before
    assert world.run("evict", "m/1", "--yes").returncode == 0
    assert world.apply().returncode == 0
    eventually(lambda: len(autoscaling_cluster.big_nodes()) == 1, "the empty node is removed")
    [kept] = world.actors().values()
    assert [kept] == [before["ModelActor:m:0"]]
    assert autoscaling_cluster.big_nodes() == [kept["node"]]

    write(world, 5, most=9)  # Ray's own maximum is three
    assert world.apply().returncode == 3
    eventually(lambda: any("adds none" in answer for answer in world.plan()["autoscaler"]), "the refusal is read back")
    released = world.run("release-nodes", world.fleet, "--yes")
    assert "big: 4 new, 0 unused and 1 in use no longer requested" in released.stderr
    assert world.actors() == {"ModelActor:m:0": kept}
    assert autoscaling_cluster.big_nodes() == [kept["node"]]

    assert "AUTOSCALER_SILENT" not in world.run("doctor", "--nodes", "--format", "json").stdout
    os.kill(autoscaling_cluster.process(node="head", kind="monitor"), signal.SIGSTOP)
    write(world, 2)
    frozen = world.apply("--wait-for-nodes", "1s")
    assert frozen.returncode == 3
    assert "Ray's autoscaler has not looked at the cluster for 15 s" in frozen.stderr
    assert "AUTOSCALER_SILENT" in world.run("doctor", "--nodes", "--format", "json").stdout


@pytest.mark.long
def test_a_watch_requests_nodes_and_uses_them_without_help(autoscaling_cluster: RayCluster, tmp_path: Path) -> None:
    world = World(autoscaling_cluster, tmp_path)

    def used(count: int) -> bool:
        return len(world.actors()) == len(autoscaling_cluster.big_nodes()) == count

    write(world, 1)
    watch = world.start("watch", "-f", world.file, "--interval", "1s")
    try:
        eventually(lambda: used(1), "a node is added and used", 300)
        write(world, 2)
        eventually(lambda: used(2), "another one, too", 300)
    finally:
        watch.kill()
        watch.communicate()
    assert sorted(row["node"] for row in world.actors().values()) == autoscaling_cluster.big_nodes()
