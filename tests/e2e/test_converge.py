"""One apply places all that Ray has room for, whatever else holds the cards, and says what it did instead."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest
from cluster import RayCluster, eventually, running_cluster
from conftest import World, member, model

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A Ray for this file: nodes that are drained or killed are gone for good."""
    with running_cluster(tmp_path_factory.mktemp("converge")) as cluster:
        yield cluster


_pools = itertools.count()


@pytest.fixture
def own(own_cluster: RayCluster, tmp_path) -> Iterator[World]:
    """A fleet of the test's own on three fresh nodes of it, a, b and c, with two cards each."""
    pool = f"pool-{next(_pools)}"
    names = {name: f"{name}-{pool}" for name in "abc"}
    own_cluster.add(names=list(names.values()), labels={"fleet.io/pool": pool})
    made = World(own_cluster, tmp_path)
    made.node = names.__getitem__  # type: ignore[attr-defined]
    made.pool = {"fleet.io/pool": pool}  # type: ignore[attr-defined]
    try:
        yield made
    finally:
        own_cluster.end_tasks()
        own_cluster.sweep(namespaces=[made.fleet])
        for name in names.values():
            own_cluster.remove_if_there(name=name)
    eventually(lambda: not made.engines(), "no process of an engine is left")


def one(world: World, replicas: int, gpus: float = 1, **more: object) -> dict[str, object]:
    return model("one", replicas, member("--plain", gpus=gpus, nodeSelector=world.pool), **more)


def where(summary: dict) -> list[str]:
    return sorted(node for row in summary["outcomes"] for node in row["nodes"])


def test_cards_that_a_ray_task_holds_are_not_offered(own: World) -> None:
    own.cluster.hold_by_task(node=own.node("b"), gpus=2)
    own.write(one(own, 4))
    eventually(lambda: used_on(own, own.node("b")) == 2, "the dashboard has Ray's new sum")
    summary = own.apply_result()
    assert (summary["exitCode"], where(summary)) == (0, [own.node("a")] * 2 + [own.node("c")] * 2)
    [resources] = [node["resources"] for node in nodes(own) if node["name"] == own.node("b")]
    assert (resources["used"]["GPU"], resources["listed"]["GPU"]) == (2, 0)


def nodes(world: World) -> list[dict]:
    found: list[dict] = json.loads(world.run("inventory", "--format", "json").stdout)["nodes"]
    return found


def used_on(world: World, name: str) -> float:
    return next(node["resources"]["used"]["GPU"] for node in nodes(world) if node["name"] == name)


def test_what_has_just_ended_blocks_nothing(own: World) -> None:
    """Ray writes its sums down every five seconds, and this plan comes sooner."""
    own.cluster.hold(namespace=own.fleet, name="foreign", node=own.node("a"), gpus=2)
    eventually(lambda: used_on(own, own.node("a")) == 2, "the dashboard has Ray's new sum")
    own.write(one(own, 6))
    own.cluster.kill(namespace=own.fleet, name="foreign")
    assert own.plan()["summary"]["create"] == 6


def test_a_draining_node_is_planned_around_in_the_same_apply_and_remembered(own: World) -> None:
    """It is the one that a plan prefers: half full, and no GET tells that it takes nothing new."""
    own.write(one(own, 1))
    first = own.apply_result()
    assert first["exitCode"] == 0
    [drained] = where(first)
    own.cluster.drain(node=drained)
    own.write(one(own, 3))
    done = own.apply()
    assert done.returncode == 0, done.stderr
    assert f"{drained}: the node is draining: planning again for 1 replica" in done.stderr
    assert "planned again: 1 of 1 elsewhere" in done.stderr
    assert len(own.engines()) == 3
    seen = {node["name"]: node["state"] for node in nodes(own)}
    assert seen[drained] == "DRAINING"

    own.write(one(own, 5))
    again = own.apply()
    assert again.returncode == 0, again.stderr
    assert "planning again" not in again.stderr
    assert own.apply_result()["outcomes"] == []


def test_a_saved_plan_for_a_draining_node_is_refused_once_that_is_known(own: World) -> None:
    own.write(one(own, 1))
    [drained] = where(own.apply_result())
    own.write(one(own, 2))
    saved = own.tmp_path / "x.fleetplan"
    assert own.run("plan", "-f", own.file, "--out", saved).returncode == 0
    own.cluster.drain(node=drained)
    blocked = own.run("apply", saved, "--yes")
    assert blocked.returncode == 3, blocked.stderr
    assert "NODE_DRAINING" in blocked.stdout
    assert own.run("plan", "-f", own.file, "--out", saved).returncode == 0
    assert own.run("apply", saved, "--yes").returncode == 0
    assert len(own.engines()) == 2


def test_a_node_that_fills_up_at_the_last_moment_is_planned_around(own: World) -> None:
    own.write(one(own, 1, gpus=2, schedulingTimeout="2s"))
    done = own.run_with("the node is taken at the last moment", "apply", "-f", str(own.file), "--yes")
    assert done.returncode == 0, done.stderr
    assert "taken back: planning again for 1 replica" in done.stderr
    assert len(own.engines()) == 1


def gang_of_two(world: World, *flags: str, **more: object) -> dict[str, object]:
    return model("gang", 1, member("--plain", *flags, role="Leader", gpus=2, nodeSelector=world.pool),
                 member("--plain", *flags, role="Worker", gpus=2, nodeSelector=world.pool), **more)


def test_a_gang_whose_node_dies_while_it_starts_fails_soon_and_leaves_no_zombie(own: World) -> None:
    own.write(gang_of_two(own, "--ready-after", "90", startupTimeout="3m"))
    client = own.start("apply", "-f", own.file, "--yes", "--format", "json")
    eventually(lambda: len(own.engines()) == 2, "both engines run, and the gang is not ready")
    [coordinator] = own.actors().values()
    second = next(own.node(name) for name in "bc" if used_on(own, own.node(name)))
    own.cluster.kill_node(name=second)
    out, told = client.communicate(timeout=150)
    [row] = json.loads(out)["outcomes"]
    assert (client.returncode, row["outcome"]) == (3, "failed"), told
    assert coordinator["state"] == "PENDING_CREATION"
    eventually(lambda: own.actors() == {}, "nothing calls itself a replica any more")
    own.write(gang_of_two(own))
    assert own.apply_result()["exitCode"] == 0
    assert len(own.engines()) == 2


def test_a_gang_that_lost_a_node_leaves_the_others_to_the_next_one(own: World) -> None:
    own.write(gang_of_two(own))
    first = own.apply_result()
    assert first["exitCode"] == 0
    lost = where(first)[1]
    own.cluster.remove(name=lost)
    second = own.apply_result()
    assert second["exitCode"] == 0, second
    assert len(own.engines()) == 2
    assert lost not in where(second)
    # the coordinator is pinned to its nodes: it ends for good, and does not try again for ever
    eventually(lambda: [row["state"] for row in own.actors().values()] == ["ALIVE"], "the lost one has given up")
    assert len(own.cluster.groups()) == 1
