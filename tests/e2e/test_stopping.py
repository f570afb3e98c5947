"""The end of engines that drain as real ones do: by every verb, alone and in a gang, and if nobody waits for it."""

from __future__ import annotations

import json
import re
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster import HERE, eventually
from e2e_world import World, model

from fleetctl.agent.supervisor import ALONE_S

pytestmark = pytest.mark.ray

PROGRAM = HERE.parent / "agent" / "engine_like.py"


def drains(role: str = "Standalone", cpus: float = 0.1) -> dict[str, Any]:
    """A member whose engine has two processes and shared memory, and ends its requests first."""
    return {"role": role, "resources": {"cpus": cpus}, "engine": {
        "command": [sys.executable, "-I", "-S", str(PROGRAM), "--host", "0.0.0.0", "--port",
                    "$(FLEETCTL_PORT)"],
        "readiness": {"http": {"path": "/state"}, "period": "200ms"}, "stop": {"grace": "5m"}}}


def state(world: World, key: str) -> dict[str, Any]:
    """Return the state of a replica's first engine."""
    return dict(httpx.get(f"http://{address(world, key)}/state", timeout=30).json())


def address(world: World, key: str) -> str:
    found = next(one for one in world.replicas() if f"{one['model']}/{one['replicaId']}" == key)
    return f"127.0.0.1:{found['members'][0]['port']}"


def signals(world: World, key: str) -> list[str]:
    """Return the signals that a replica's engines have received, as their logs say."""
    return sorted(re.findall(r"(?:front|worker): signal .*", world.run("logs", key).stdout))


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor() as pool:
        yield pool


def working(world: World, pool: ThreadPoolExecutor, key: str) -> Future[httpx.Response]:
    """Let a request run until its engine was told to end, and then longer than one without its actor would have."""
    at = address(world, key)

    def now() -> dict[str, Any]:
        return dict(httpx.get(f"http://{at}/state", timeout=30).json())

    def until_told() -> None:
        eventually(lambda: now()["signals"], "the engine was told to end", 240)
        time.sleep(ALONE_S + 2.0)
        httpx.post(f"http://{at}/be?done=1", timeout=30)

    asked = pool.submit(httpx.get, f"http://{at}/work", timeout=300)
    eventually(lambda: now()["running"], "the request runs")
    pool.submit(until_told)
    return asked


ONE = ["front: signal 15 number 1, 1 requests running", "worker: signal 15"]
IDLE = ["front: signal 15 number 1, 0 requests running", "worker: signal 15"]


def test_requests_end_before_their_engine_and_it_runs_as_the_node_does(
    world: World, pool: ThreadPoolExecutor
) -> None:
    world.write(model("one", 1, drains(cpus=1)), model("gang", 1, drains("Leader"), drains("Worker")))
    assert world.apply_result()["exitCode"] == 0
    before = state(world, "one/0")
    assert not {"LD_PRELOAD", "SPT_NOENV"} & before["env"].keys()
    assert before["env"]["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in state(world, "gang/0")["env"]

    asked = working(world, pool, "one/0")
    assert world.run("restart", "one/0", "-f", world.file, "--yes").returncode == 0
    assert (asked.result().status_code, signals(world, "one/0")) == (200, ONE)
    assert state(world, "one/0")["pid"] != before["pid"]
    asked = working(world, pool, "one/0")
    assert world.run("evict", "one/0", "--yes").returncode == 0
    assert (asked.result().status_code, signals(world, "one/0")) == (200, sorted([*ONE, *ONE]))
    assert not Path("/dev/shm", before["segment"]).exists()

    asked = working(world, pool, "gang/0")
    world.run_with("while a replica is leaving", "evict", "gang/0", "--yes")
    assert asked.result().status_code == 200
    assert "it is being ended" in json.dumps(world.listed_jobs()), "it was no longer ready from then on"
    eventually(lambda: world.actors() == {}, "the gang has ended itself: what was begun is completed")
    assert signals(world, "gang/0") == sorted([*ONE, *IDLE])


def test_a_gang_that_loses_a_member_ends_the_others_requests_first(world: World, pool: ThreadPoolExecutor) -> None:
    world.write(model("gang", 1, drains("Leader"), drains("Worker")))
    assert world.apply_result()["exitCode"] == 0
    [replica] = world.replicas()
    worker = httpx.get(f"http://127.0.0.1:{replica['members'][1]['port']}/state", timeout=30).json()
    asked = working(world, pool, "gang/0")
    httpx.post(f"http://127.0.0.1:{replica['members'][1]['port']}/be?kill=worker", timeout=30)
    assert asked.result().status_code == 200
    eventually(lambda: world.actors()["ModelActor:gang:0"]["restarts"] == 1, "the gang is started again")
    assert ONE[0] in signals(world, "gang/0")
    assert worker["pid"] not in world.engines()


@pytest.mark.long
def test_draining_is_over_once_the_engines_say_that_no_request_is_left(world: World) -> None:
    world.write(model("one", 1, drains()))
    assert world.apply_result()["exitCode"] == 0
    done = world.run("evict", "one/0", "--drain", "45s", "--yes")
    assert done.returncode == 0, done.stderr
    assert "no request is left" in done.stdout + done.stderr
