"""The doctor on a real Ray: what is left of ours is found, and removed once a person agrees; what lives stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cluster import MARK, OTHER_RAY, eventually
from conftest import World, member, model

from fleetctl.agent.orphans import MARK as ENGINE_VARIABLES

pytestmark = pytest.mark.ray

LEAVE = """\
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


@pytest.fixture
def orphan(world: World) -> Iterator[subprocess.Popen[bytes]]:
    """An engine's process that has lost its actor and both its guards."""
    mark = dict.fromkeys(ENGINE_VARIABLES, "0") | {"FLEETCTL_MODEL": "org/lost", MARK: world.fleet}
    process = subprocess.Popen(["sleep", "1000"], env={"PATH": os.environ["PATH"], **mark}, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def diagnosed(world: World, *flags: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The message of each finding that is about this test, by its code, and the whole diagnosis."""
    done = world.run("doctor", "-f", world.file, "--format", "json", *flags)
    diagnosis = json.loads(done.stdout)
    assert done.returncode == diagnosis["exitCode"], done.stderr
    ours = {"broken", world.fleet, "ModelActor:gone:0", "agent"}
    return {one["code"]: one["message"] for one in diagnosis["findings"]
            if one["subject"] in ours or "org/lost" in one["message"]}, diagnosis


def test_what_is_left_of_ours_is_found_and_removed_and_what_lives_stays(
    world: World, orphan: subprocess.Popen[bytes]
) -> None:
    world.write(model("one", 1, member(node="a")))
    assert world.apply_result()["exitCode"] == 0
    broken = member(node="b")
    broken["engine"].update(command=["no-such-engine"], env={"TOKEN": {"fromNode": "NO_SUCH_TOKEN"}})
    world.write(model("one", 1, member(node="a")), model("broken", 1, broken))
    [node_id] = world.cluster.add(names=["d"]).values()
    try:
        subprocess.run([os.environ.get(OTHER_RAY) or sys.executable, "-c", LEAVE, world.cluster.gcs(), world.fleet,
                        node_id], check=True, timeout=120)
        engines = world.engines()
        found, diagnosis = diagnosed(world, "--nodes")
        assert diagnosis["nodesExamined"] == 5
        assert set(found) == {"LEAKED_GROUP", "LOCK_LEFT", "ORPHAN_ENGINE", "COMMAND_MISSING", "VARIABLE_MISSING"}
        assert "on b (1 of 1 nodes that may take it)" in found["COMMAND_MISSING"]
        assert f"process {orphan.pid} (sleep 1000)" in found["ORPHAN_ENGINE"]
        assert "holds 1 GPU on d" in found["LEAKED_GROUP"]

        found, diagnosis = diagnosed(world, "--nodes", "--fix", "--yes")
        assert set(found) == {"COMMAND_MISSING", "VARIABLE_MISSING"}
        assert {one["thing"]: one["done"] for one in diagnosis["repaired"]} == {
            "placementGroup": True, "engine": True, "lock": True}
        orphan.wait(10)
        assert world.engines() == [pid for pid in engines if pid != orphan.pid]
        assert set(world.actors()) == {"ModelActor:one:0"}
        eventually(lambda: not [name for name in world.cluster.groups() if "gone" in name], "its GPU is free")
    finally:
        world.cluster.remove_if_there(name="d")
