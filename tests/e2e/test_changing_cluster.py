"""One apply places everything Ray has room for, whatever else holds the cards, and reports what it did instead."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest
from cluster import RayCluster, eventually
from e2e_world import World, member, model

pytestmark = pytest.mark.ray

SPARE = {"fleet.io/pool": "spare"}
_numbers = itertools.count()


class Spare:
    """Nodes for this file alone, with two cards each. A drained, killed or removed node is replaced."""

    def __init__(self, cluster: RayCluster) -> None:
        self.cluster = cluster
        self.names: list[str] = []
        self._drained: list[str] = []

    def ensure(self, count: int) -> None:
        """Add nodes until there are `count`."""
        while self._drained:
            self.remove(self._drained.pop())
        fresh = [f"spare-{next(_numbers)}" for _ in range(count - len(self.names))]
        self.cluster.add(names=fresh, labels=SPARE)
        self.names += fresh

    def drain(self, name: str) -> None:
        self._drained.append(name)
        self.cluster.drain(node=name)

    def kill(self, name: str) -> None:
        self.names.remove(name)
        self.cluster.kill_node(name=name)

    def remove(self, name: str) -> None:
        self.names.remove(name)
        self.cluster.remove(name=name)


@pytest.fixture(scope="module")
def spare(ray_cluster: RayCluster) -> Iterator[Spare]:
    spare_nodes = Spare(ray_cluster)
    yield spare_nodes
    for name in list(spare_nodes.names):
        spare_nodes.remove(name)


def one(replicas: int, *, gpus: float = 1, on: dict[str, str] | None = None, **more: object) -> dict[str, object]:
    return model("one", replicas, member("--plain", gpus=gpus, **({"nodeSelector": on} if on else {})), **more)


def used_nodes(summary: dict) -> list[str]:
    return sorted(node for row in summary["outcomes"] for node in row["nodes"])


def test_cards_that_a_ray_task_holds_are_not_offered(world: World) -> None:
    world.cluster.hold_by_task(node="b", gpus=2)
    try:
        world.write(one(4))
        eventually(lambda: used_on(world, "b") == 2, "the dashboard has Ray's new sum")
        summary = world.apply_result()
        assert (summary["exitCode"], used_nodes(summary)) == (0, ["a", "a", "c", "c"])
        [resources] = [node["resources"] for node in nodes(world) if node["name"] == "b"]
        assert (resources["used"]["GPU"], resources["listed"]["GPU"]) == (2, 0)
    finally:
        world.cluster.end_tasks()
    eventually(lambda: used_on(world, "b") == 0, "the dashboard has Ray's new sum")


def nodes(world: World) -> list[dict]:
    found: list[dict] = json.loads(world.run("inventory", "--format", "json").stdout)["nodes"]
    return found


def used_on(world: World, name: str) -> float:
    return next(node["resources"]["used"]["GPU"] for node in nodes(world) if node["name"] == name)


def test_cards_of_an_actor_that_has_just_ended_are_offered_again(world: World) -> None:
    """Ray updates its sums every five seconds; a plan that comes sooner waits for them.

    On a busy machine the dashboard's own statistics may be older still, so a later plan counts as well.
    """
    world.cluster.hold(namespace=world.fleet, name="foreign", node="a", gpus=2)
    eventually(lambda: "foreign" in world.listed_actors(), "the dashboard lists it")
    eventually(lambda: used_on(world, "a") == 2, "the dashboard has Ray's new sum")
    world.write(one(6))
    world.cluster.kill(namespace=world.fleet, name="foreign")
    eventually(lambda: world.cluster.free(node="a", resource="GPU") == 2, "Ray has the cards back")
    eventually(lambda: "foreign" not in world.listed_actors(), "the dashboard lists it as dead")
    eventually(lambda: world.plan()["summary"]["create"] == 6, "the cards are offered again", 120)


def gang_of_two(*flags: str, **more: object) -> dict[str, object]:
    return model("gang", 1, member("--plain", *flags, role="Leader", gpus=2, nodeSelector=SPARE),
                 member("--plain", *flags, role="Worker", gpus=2, nodeSelector=SPARE), **more)


def test_a_gang_that_lost_a_node_frees_its_other_nodes_for_the_next_gang(world: World, spare: Spare) -> None:
    spare.ensure(3)
    world.write(gang_of_two())
    first = world.apply_result()
    assert first["exitCode"] == 0
    lost = used_nodes(first)[1]
    spare.remove(lost)
    # as above: on a busy machine the dashboard learns late of ended actors
    eventually(lambda: world.plan()["summary"]["create"] == 1, "the other node's cards are offered again", 120)
    second = world.apply_result()
    assert second["exitCode"] == 0, str(second)
    assert len(world.engines()) == 2
    assert lost not in used_nodes(second)
    # the coordinator is pinned to its nodes: it ends for good, and does not retry forever
    eventually(lambda: [row["state"] for row in world.actors().values()] == ["ALIVE"], "the lost gang has ended")
    assert len(world.cluster.groups()) == 1


def test_a_draining_node_is_planned_around_in_the_same_apply_and_remembered(world: World, spare: Spare) -> None:
    """A plan prefers this node because it is half full, and no GET reveals that it accepts nothing new."""
    spare.ensure(2)
    world.write(one(1, on=SPARE))
    first = world.apply_result()
    assert first["exitCode"] == 0
    [drained] = used_nodes(first)
    spare.drain(drained)
    world.write(one(2, on=SPARE))
    done = world.apply()
    assert done.returncode == 0, done.stderr
    assert f"{drained}: the node is draining: planning again for 1 replica" in done.stderr
    assert "planned again: 1 of 1 elsewhere" in done.stderr
    assert len(world.engines()) == 2
    seen = {node["name"]: node["state"] for node in nodes(world)}
    assert seen[drained] == "DRAINING"

    world.write(one(3, on=SPARE))
    again = world.apply()
    assert again.returncode == 0, again.stderr
    assert "planning again" not in again.stderr
    assert world.apply_result()["outcomes"] == []


@pytest.mark.long
def test_a_saved_plan_for_a_node_that_drains_since_is_blocked_and_a_new_plan_avoids_it(
    world: World, spare: Spare
) -> None:
    spare.ensure(2)
    world.write(one(1, on=SPARE))
    [drained] = used_nodes(world.apply_result())
    world.write(one(2, on=SPARE))
    saved = world.tmp_path / "x.fleetplan"
    assert world.run("plan", "-f", world.file, "--out", saved).returncode == 0
    spare.drain(drained)
    blocked = world.run("apply", saved, "--yes")
    assert blocked.returncode == 3, blocked.stderr
    assert "NODE_DRAINING" in blocked.stdout
    assert world.run("plan", "-f", world.file, "--out", saved).returncode == 0
    assert world.run("apply", saved, "--yes").returncode == 0
    assert len(world.engines()) == 2


def test_a_node_that_fills_up_at_the_last_moment_is_planned_around(world: World) -> None:
    world.write(one(1, gpus=2, schedulingTimeout="2s"))
    done = world.run_with("the node is taken at the last moment", "apply", "-f", str(world.file), "--yes")
    assert done.returncode == 0, done.stderr
    assert "taken back: planning again for 1 replica" in done.stderr
    assert len(world.engines()) == 1


@pytest.mark.long
def test_a_gang_whose_node_dies_while_it_starts_fails_soon_and_starts_on_other_nodes(
    world: World, spare: Spare
) -> None:
    spare.ensure(4)  # a gang that has just ended may still hold the cards of its other node
    world.write(gang_of_two("--ready-after", "20", startupTimeout="3m"))
    client = world.start("apply", "-f", world.file, "--yes", "--format", "json")
    eventually(lambda: len(world.engines()) == 2, "both engines run, and the gang is not ready")
    [coordinator] = world.actors().values()
    second = next(name for name in spare.names
                  if used_on(world, name) and world.cluster.node_id(name=name) != coordinator["node"])
    spare.kill(second)
    out, messages = client.communicate(timeout=600)
    [row] = json.loads(out)["outcomes"]
    assert (client.returncode, row["outcome"]) == (0, "ready"), messages
    assert f"{second}: the node is dead or gone: planning again for 1 replica" in messages
    assert coordinator["state"] == "PENDING_CREATION"
    assert second not in row["nodes"]
    assert len(world.engines()) == 2, "those of the first gang are gone"
