"""Memory as the driver reports it, on a real Ray: Ray's reporter and the agent read one stand-in of NVIDIA's driver.

Two nodes with two cards of 80 GiB each. A file for each node lists the processes on its cards; a process counts
while it lives.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cluster import MARK, OTHER_RAY, RayCluster, eventually
from e2e_world import ENGINE, World, member, model
from nvidia_stand_in import Host, build

from fleetctl.agent.report import MARKED

pytestmark = pytest.mark.ray

LABEL = "fleet.io/with-driver"
GIB = 1024
LEAVE_BEHIND = """\
import json, sys, ray
from ray.experimental.internal_kv import _internal_kv_put
from ray.util.placement_group import placement_group
address, namespace, node_id = sys.argv[1:]
ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level="ERROR")

@ray.remote(num_cpus=0)
class Coordinator:
    def take(self):
        group = placement_group([{"GPU": 1}], name="ModelActor:gone:0", lifetime="detached",
                                bundle_label_selector=[{"ray.io/node-id": node_id}])
        return group.wait(60)

coordinator = Coordinator.remote()
assert ray.get(coordinator.take.remote())
ray.kill(coordinator)
_internal_kv_put(f"lock:{namespace}:0".encode(), json.dumps({"job": "j0", "driver": "ff000000"}).encode(),
                 namespace=b"fleetctl")
"""
"""A coordinator that died and left its placement group, and a run that died and left its lock."""


@pytest.fixture(scope="module")
def hosts(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Host]]:
    """Nodes v1 and v2, whose reporters update every second."""
    folder = tmp_path_factory.mktemp("nvidia")
    nvidia, found = build(folder), {}
    for name in ("v1", "v2"):
        found[name] = nvidia.host(folder / f"{name}.cards", *(
            f"card GPU-{name}-{index} {80 * GIB} NVIDIA H100 80GB HBM3" for index in range(2)))
        ray_cluster.add(names=[name], labels={LABEL: "yes"}, env={**found[name].env,
                                                                      "REPORTER_UPDATE_INTERVAL_MS": "1000"})
    yield found
    for name in found:
        ray_cluster.remove(name=name)


@pytest.fixture
def foreign_processes() -> Iterator[list[subprocess.Popen[bytes]]]:
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
    """Let a new process use memory of a card, and wait until the dashboard reports it."""
    process = subprocess.Popen(["sleep", "1000"])
    host.use(uuid, process.pid, mebibytes)
    eventually(lambda: cards(world).get(uuid, {}).get("memoryForeign") == mebibytes << 20, "the dashboard reports it")
    return process


def one(key: str, gpus: float, node: str | None = None) -> dict[str, Any]:
    requested = member("--plain", gpus=gpus, nodeSelector={LABEL: "yes", **({"fleet.io/node": node} if node else {})})
    return model(key, 1, requested, startupTimeout="120s")


def test_a_card_in_use_by_a_foreign_process_is_not_offered_and_the_plan_names_the_process(
    world: World, hosts: dict[str, Host], foreign_processes: list[subprocess.Popen[bytes]]
) -> None:
    world.write(one("org/pair", 2))
    assert [member["node"] for action in world.plan()["actions"] for member in action["members"]] == ["v1"]
    foreign_processes.append(use(world, hosts["v1"], "GPU-v1-1", 20 * GIB))
    assert [member["node"] for action in world.plan()["actions"] for member in action["members"]] == ["v2"]
    world.write(one("org/pair", 2, "v1"))
    [blocked] = world.plan()["blocked"]
    assert blocked["code"] == "CARD_IN_USE"
    assert blocked["message"].endswith(f"; 20Gi of card 1 on v1 are in use by process {foreign_processes[0].pid}")
    assert f"20Gi by process {foreign_processes[0].pid}" in world.run("inventory", COLUMNS="240").stdout
    foreign_processes[0].kill()
    foreign_processes[0].wait()
    eventually(lambda: [action["id"] for action in world.plan()["actions"]] == ["org/pair/0"], "it is offered again")


def test_a_dirty_card_that_ray_grants_is_held_while_the_replica_gets_a_clean_card(
    world: World, hosts: dict[str, Host], foreign_processes: list[subprocess.Popen[bytes]]
) -> None:
    """Ray grants card 0 first. A process that an evicted engine left behind counts as any foreign process."""
    foreign_processes.append(use(world, hosts["v1"], "GPU-v1-0", 20 * GIB))
    world.write(one("org/single", 1, "v1"))
    done = world.run_with("no wait for dirty cards", "apply", "-f", world.file, "--yes", "--format", "json")
    assert done.returncode == 0, done.stderr
    [replica] = world.replicas()
    assert replica["members"][0]["gpuUuids"] == ["GPU-v1-1"]
    assert world.ask(json.loads(done.stdout)["outcomes"][0])["CUDA_VISIBLE_DEVICES"] == "1"
    eventually(lambda: world.cluster.free(node="v1", resource="GPU") == 1, "the dirty card is Ray's again")


def test_a_gang_gets_clean_cards_on_every_node_where_ray_grants_dirty_cards_first(
    world: World, hosts: dict[str, Host], foreign_processes: list[subprocess.Popen[bytes]]
) -> None:
    """The gang fails and gives everything back; the run holds the dirty cards and creates it again."""
    foreign_processes += [use(world, hosts[name], f"GPU-{name}-0", 20 * GIB) for name in hosts]
    requested = {"gpus": 1, "nodeSelector": {LABEL: "yes"}}
    world.write(model("org/gang", 1, member("--plain", role="Leader", **requested),
                      member("--plain", role="Worker", **requested), startupTimeout="120s"))
    done = world.run_with("no wait for dirty cards", "apply", "-f", world.file, "--yes", "--format", "json")
    assert done.returncode == 0, done.stderr
    [replica] = world.replicas()
    assert sorted(each["gpuUuids"] for each in replica["members"]) == [["GPU-v1-1"], ["GPU-v2-1"]]
    assert replica["restarts"] == 0
    eventually(lambda: [world.cluster.free(node=name, resource="GPU") for name in hosts] == [1, 1],
               "the dirty cards are Ray's again")
    assert world.cluster.classes(name="CardHolder") == []
    assert [one for one in world.inventory()["failures"] if one["fleet"] == world.fleet] == []


def test_the_doctor_removes_what_dead_replicas_left_and_nothing_alive_and_the_memory_is_offered_again(
    world: World, hosts: dict[str, Host], foreign_processes: list[subprocess.Popen[bytes]]
) -> None:
    """The commands that are run are those of the findings, verbatim."""
    alive = model("one", 1, member(node="a"))
    world.write(alive)
    assert world.apply_result()["exitCode"] == 0
    # an engine's process that has lost its actor and both its guards
    variables = {**dict.fromkeys(MARKED, "0"), "FLEETCTL_MODEL": "org/lost", MARK: world.fleet}
    orphan = subprocess.Popen(["sleep", "1000"], env={"PATH": os.environ["PATH"], **variables}, start_new_session=True)
    foreign_processes.append(orphan)
    hosts["v1"].use("GPU-v1-1", orphan.pid, 20 * GIB)
    subprocess.run([os.environ.get(OTHER_RAY) or sys.executable, "-c", LEAVE_BEHIND, world.cluster.gcs(), world.fleet,
                    world.cluster.node_id(name="c")], check=True, timeout=120)
    eventually(lambda: cards(world).get("GPU-v1-1", {}).get("memoryForeign") == 20 * GIB << 20,
               "the dashboard reports it")
    broken = member(node="b")
    broken["engine"].update(command=["no-such-engine"], env={"TOKEN": {"fromNode": "NO_SUCH_TOKEN"}})
    world.write(alive, model("broken", 1, broken), one("org/pair", 2, "v1"))
    assert [blocked["code"] for blocked in world.plan()["blocked"]] == ["CARD_IN_USE"]
    engines = world.engines()

    def diagnosed(*command: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        """The findings about this test by code, and the whole diagnosis."""
        done = world.run(*command, "-f", world.file, "--format", "json")
        diagnosis: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == diagnosis["exitCode"], done.stderr
        subjects = {"broken", world.fleet, "ModelActor:gone:0"}
        return {each["code"]: each for each in diagnosis["findings"]
                if each["subject"] in subjects or str(orphan.pid) in each["message"]}, diagnosis

    found, _ = diagnosed("doctor")
    assert set(found) == {"CARD_IN_USE", "LEAKED_GROUP"}
    found, diagnosis = diagnosed(*shlex.split(found["CARD_IN_USE"]["command"])[1:])
    assert diagnosis["nodesExamined"] == 6
    assert set(found) == {"CARD_IN_USE", "LEAKED_GROUP", "LOCK_LEFT", "ORPHAN_ENGINE", "COMMAND_MISSING",
                          "VARIABLE_MISSING"}
    assert "on b (1 of 1 nodes that may run it)" in found["COMMAND_MISSING"]["message"]
    assert f"process {orphan.pid} (sleep 1000)" in found["ORPHAN_ENGINE"]["message"]
    assert "holds 1 GPU on c" in found["LEAKED_GROUP"]["message"]

    found, diagnosis = diagnosed(*shlex.split(found["ORPHAN_ENGINE"]["command"])[1:], "--yes")
    assert found.keys() - {"CARD_IN_USE"} == {"COMMAND_MISSING", "VARIABLE_MISSING"}
    assert {each["thing"]: each["done"] for each in diagnosis["repaired"]} == {
        "placementGroup": True, "engine": True, "lock": True}
    orphan.wait(300)
    assert world.engines() == [pid for pid in engines if pid != orphan.pid]
    assert set(world.actors()) == {"ModelActor:one:0"}
    eventually(lambda: not [name for name in world.cluster.groups() if "gone" in name], "its GPU is free")
    eventually(lambda: "org/pair/0" in [action["id"] for action in world.plan()["actions"]], "it is offered again")


@pytest.fixture
def lost(world: World, hosts: dict[str, Host]) -> Iterator[None]:
    """Card 0 of v1 is lost; Ray's reporter ends its list there, so v1 reports no card."""
    hosts["v1"].fail("lost GPU-v1-0")
    eventually(lambda: not {"GPU-v1-0", "GPU-v1-1"} & cards(world).keys(), "the dashboard reports no card of v1")
    yield
    hosts["v1"].repair()
    eventually(lambda: {"GPU-v1-0", "GPU-v1-1"} <= cards(world).keys(), "the dashboard reports all cards again")


@pytest.mark.usefixtures("lost")
def test_a_lost_card_gets_nothing_and_the_others_are_used_those_of_its_node_last(world: World) -> None:
    """Ray grants card 0 of v1 first."""
    three = one("org/three", 1)
    world.write({**three, "replicas": 3})
    plan = world.plan()
    assert [member["node"] for action in plan["actions"] for member in action["members"]] == ["v2", "v2", "v1"]
    [note] = [note for note in plan["notes"] if "v1" in note["nodes"]]
    assert (note["code"], "0 of 2 cards" in note["message"]) == ("CARDS_UNREPORTED", True)
    summary = world.apply_result()
    assert [row["outcome"] for row in summary["outcomes"]] == ["ready"] * 3
    [on_v1] = [row for row in summary["outcomes"] if row["nodes"] == ["v1"]]
    assert world.ask(on_v1)["CUDA_VISIBLE_DEVICES"] == "GPU-v1-1", "CUDA may count only the cards that it can open"
    assert {uuid for replica in world.replicas() for uuid in replica["members"][0]["gpuUuids"]} == {
        "GPU-v1-1", "GPU-v2-0", "GPU-v2-1"}
    world.write({**three, "replicas": 4})
    [blocked] = world.plan()["blocked"]
    assert (blocked["code"], "CARD_LOST: card 0 is lost" in blocked["message"]) == ("CARD_COOLING", True)
    findings = json.loads(world.run("doctor", "--nodes", "--format", "json").stdout)["findings"]
    assert [one["subject"] for one in findings if one["code"] == "CARD_LOST"] == ["v1 card 0"]


def test_a_card_with_memory_errors_is_refused_and_another_is_taken(world: World, hosts: dict[str, Host]) -> None:
    hosts["v1"].fail("ecc GPU-v1-0 3")
    world.write(one("org/single", 1, "v1"))
    assert [row["outcome"] for row in world.apply_result()["outcomes"]] == ["ready"]
    hosts["v1"].repair()
    assert world.replicas()[0]["members"][0]["gpuUuids"] == ["GPU-v1-1"]
    world.write(one("org/pair", 1, "v1"))
    [blocked] = world.plan()["blocked"]
    assert (blocked["code"], "3 uncorrected memory errors" in blocked["message"]) == ("CARD_COOLING", True)


def test_a_card_on_which_three_models_failed_gets_no_replica_and_the_other_cards_of_its_node_do(
    world: World, hosts: dict[str, Host]
) -> None:
    """Only card 0 of v2 is bad. Ray grants it first all the same, and the replica refuses it."""
    def bad(key: str, replicas: int, gpus: float) -> dict[str, Any]:
        failing = one(key, gpus, "v2")
        failing["workers"][0]["members"][0]["engine"]["command"] = [
            "sh", "-c", 'test "$CUDA_VISIBLE_DEVICES" != 0 || { echo "uncorrectable ECC error"; exit 7; }; exec "$@"',
            "sh", sys.executable, ENGINE]
        return {**failing, "replicas": replicas}

    world.write(*(bad(key, 1, 0.3) for key in ("org/x", "org/y", "org/z")))
    assert [row["code"] for row in world.apply_result()["outcomes"]] == ["ENGINE_EXITED"] * 3
    assert [tuple(failure["gpuUuids"]) for failure in world.inventory()["failures"]
            if failure["fleet"] == world.fleet] == [("GPU-v2-0",)] * 3
    world.write(bad("org/good", 2, 1))
    summary = world.apply_result()
    assert [(row["outcome"], row.get("code")) for row in summary["outcomes"]] == [
        ("ready", None), ("blocked", "CARD_COOLING")]
    [replica] = world.replicas()
    assert replica["members"][0]["gpuUuids"] == ["GPU-v2-1"]
    [blocked] = world.plan()["blocked"]
    assert "3 x ENGINE_EXITED: uncorrectable ECC error (v2, each time on card GPU-v2-0)" in blocked["message"]
    assert "card 0 on v2" in " ".join(world.run("status", "-f", world.file, COLUMNS="240").stdout.split())
    assert len(world.plan("--ignore-cooldown")["actions"]) == 1
    eventually(lambda: world.cluster.free(node="v2", resource="GPU") == 1, "the card is Ray's again")
