"""Memory as the driver reports it, on a real Ray: its own reporter and our agent read one stand-in of NVIDIA's driver.

Two nodes with two cards of 80 GiB each. Who uses them is in a file for each node; a process counts while it lives.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from cluster import RayCluster, eventually
from conftest import World, member, model
from nvidia_stand_in import Host, build

pytestmark = pytest.mark.ray

LABEL = "fleet.io/with-driver"
GIB = 1024


@pytest.fixture(scope="module")
def hosts(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Host]]:
    """Nodes v1 and v2, whose reporters look every second."""
    folder = tmp_path_factory.mktemp("nvidia")
    nvidia, found = build(folder), {}
    for name in ("v1", "v2"):
        found[name] = nvidia.host(folder / f"{name}.cards", *(
            f"card GPU-{name}-{index} {80 * GIB} NVIDIA H100 80GB HBM3" for index in range(2)))
        ray_cluster.add(names=[name], labels={LABEL: "yes"}, env={**found[name].env,
                                                                      "REPORTER_UPDATE_INTERVAL_MS": "500"})
    yield found
    for name in found:
        ray_cluster.remove(name=name)


@pytest.fixture
def strangers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that the test starts and that end with it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def cards(world: World) -> dict[str, dict[str, Any]]:
    inventory = json.loads(world.run("inventory", "--format", "json").stdout)
    return {card["uuid"]: card for node in inventory["nodes"] for card in node["gpus"] if card["uuid"]}


def use(world: World, host: Host, uuid: str, mebibytes: int) -> subprocess.Popen[bytes]:
    """Let a new process have memory of a card, and wait until the dashboard has heard of it."""
    process = subprocess.Popen(["sleep", "1000"])
    host.use(uuid, process.pid, mebibytes)
    eventually(lambda: cards(world).get(uuid, {}).get("memoryForeign") == mebibytes << 20, "the dashboard knows")
    return process


def one(key: str, gpus: int, node: str | None = None) -> dict[str, Any]:
    asked = member("--plain", gpus=gpus, nodeSelector={LABEL: "yes", **({"fleet.io/node": node} if node else {})})
    return model(key, 1, asked, startupTimeout="120s")


def test_a_card_that_strangers_use_is_not_offered_and_the_plan_says_whose(
    world: World, hosts: dict[str, Host], strangers: list[subprocess.Popen[bytes]]
) -> None:
    world.write(one("org/pair", 2))
    assert [member["node"] for action in world.plan()["actions"] for member in action["members"]] == ["v1"]
    strangers.append(use(world, hosts["v1"], "GPU-v1-1", 20 * GIB))
    assert [member["node"] for action in world.plan()["actions"] for member in action["members"]] == ["v2"]
    world.write(one("org/pair", 2, "v1"))
    [blocked] = world.plan()["blocked"]
    assert blocked["code"] == "CARD_IN_USE"
    assert blocked["message"].endswith(f"; 20Gi of card 1 on v1 are in use by process {strangers[0].pid}")
    assert f"20Gi by process {strangers[0].pid}" in world.run("inventory", COLUMNS="240").stdout
    strangers[0].kill()
    strangers[0].wait()
    eventually(lambda: [action["id"] for action in world.plan()["actions"]] == ["org/pair/0"], "it is offered again")


def test_a_dirty_card_that_ray_hands_out_is_held_while_the_replica_gets_a_clean_one(
    world: World, hosts: dict[str, Host], strangers: list[subprocess.Popen[bytes]]
) -> None:
    """Ray hands out card 0 first. What an evicted engine leaves behind is a stranger like any other."""
    strangers.append(use(world, hosts["v1"], "GPU-v1-0", 20 * GIB))
    world.write(one("org/single", 1, "v1"))
    done = world.run_with("no patience with dirty cards", "apply", "-f", world.file, "--yes", "--format", "json")
    assert done.returncode == 0, done.stderr
    [replica] = world.replicas()
    assert replica["members"][0]["gpuUuids"] == ["GPU-v1-1"]
    assert world.ask(json.loads(done.stdout)["outcomes"][0])["CUDA_VISIBLE_DEVICES"] == "1"
    eventually(lambda: world.cluster.free(node="v1", resource="GPU") == 1, "the dirty card is Ray's again")
