"""Waiting needs no lock, no order and no thread of its own: while one engine loads, everything else continues."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster import eventually
from e2e_world import World, member, model

pytestmark = pytest.mark.ray


def test_while_one_engine_loads_another_apply_and_an_eviction_go_ahead(world: World) -> None:
    quick, slow = model("quick", 1, member("--plain")), model("slow", 1, member(*world.loads))
    world.write(quick, slow)
    first = world.start("apply", "-f", world.file, "--yes", "--format", "json")
    eventually(lambda: (world.actors().get("ModelActor:quick:0") or {}).get("state") == "ALIVE"
               and len(world.engines()) == 2, "one is ready, the other loads")

    assert world.run("evict", "quick/0", "--yes").returncode == 0
    assert "ModelActor:quick:0" not in world.actors()
    assert world.actors()["ModelActor:slow:0"]["state"] == "PENDING_CREATION"
    second = world.start("apply", "-f", world.file, "--yes", "--format", "json")
    eventually(lambda: (world.actors().get("ModelActor:quick:0") or {}).get("state") == "ALIVE", "it is created again")
    world.loaded.touch()
    for client, code, quickly in ((first, 3, ("failed", "EVICTED")), (second, 0, ("ready", None))):
        out, messages = client.communicate(timeout=600)
        assert client.returncode == code, messages
        assert {(row["model"], row["outcome"], row.get("code")) for row in json.loads(out)["outcomes"]} == {
            ("quick", *quickly), ("slow", "ready", None)}, "each apply tells of the replica that it made"


def test_parallelism_limits_creating_but_not_loading(world: World) -> None:
    world.write(model("one", 3, member(*world.loads)))
    client = world.start("apply", "-f", world.file, "--yes", "--parallelism", "1", "--format", "jsonl")
    eventually(lambda: len(world.engines()) == 3, "three engines load at the same time")
    assert {row["state"] for row in world.actors().values()} == {"PENDING_CREATION"}
    world.loaded.touch()
    out, messages = client.communicate(timeout=600)
    assert client.returncode == 0, messages
    kinds = [json.loads(line)["type"] for line in out.splitlines()]
    assert kinds.index("lockReleased") < kinds.index("replicaReady")


@pytest.mark.long
def test_without_waiting_the_apply_ends_when_all_replicas_are_created(world: World) -> None:
    world.write(model("one", 2, member(*world.loads)))
    summary = world.apply_result("--no-wait")
    assert summary["exitCode"] == 0
    assert [row["outcome"] for row in summary["outcomes"]] == ["starting", "starting"]
    [row] = world.plan()["models"]
    assert (row["live"], row["starting"]) == (2, 2)
    events = []
    with world.start("apply", "-f", world.file, "--yes", "--format", "jsonl") as waiting:
        assert waiting.stdout is not None
        for event in map(json.loads, waiting.stdout):
            events.append(event["type"])
            if event["type"] == "lockReleased":  # by then it has found the starting replicas
                world.loaded.touch()
    assert waiting.returncode == 0
    assert events.count("replicaReady") == 2


@contextmanager
def frozen_workers(node_id: str) -> Iterator[list[int]]:
    """Freeze every worker process that Ray starts on a node in the meantime, as on a very slow machine."""
    frozen: list[int] = []
    over = threading.Event()

    def freeze() -> None:
        known = set(worker_pids(node_id))
        while not over.wait(0.05):  # a worker needs half a second to start
            for pid in worker_pids(node_id):
                if pid not in known:
                    known.add(pid)
                    os.kill(pid, signal.SIGSTOP)
                    frozen.append(pid)

    thread = threading.Thread(target=freeze)
    thread.start()
    try:
        yield frozen
    finally:
        over.set()
        thread.join()
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)


def worker_pids(node_id: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"default_worker.py" in command and f"--node-id={node_id}".encode() in command:
            found.append(int(entry.name))
    return found


def test_a_replica_whose_worker_is_slow_to_start_is_awaited_and_not_taken_back(world: World) -> None:
    """Ray has granted both cards; only the processes are slow. That is no shortage."""
    world.write(model("one", 2, member("--plain", node="a"), schedulingTimeout="2s"))
    with frozen_workers(world.cluster.node_id(name="a")) as frozen:
        client = world.start("apply", "-f", world.file, "--yes", "--format", "json")
        eventually(lambda: frozen and len(world.actors()) == 2, "both are created, and no worker moves")
        time.sleep(5)  # longer than the scheduling timeout, which must not apply here
        assert len(world.actors()) == 2
    out, messages = client.communicate(timeout=600)
    assert client.returncode == 0, messages
    assert [(row["replicaId"], row["outcome"]) for row in json.loads(out)["outcomes"]] == [(0, "ready"), (1, "ready")]
    assert {row["restarts"] for row in world.actors().values()} == {0}
