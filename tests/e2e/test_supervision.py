"""No process of an engine outlives its replica, whichever process is killed; the replica restarts by its policy."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from cluster import eventually, parent_of, tree_of
from e2e_world import World, member, model

from fleetctl.agent.leftovers import ACTORS

pytestmark = pytest.mark.ray


def supervisors_of(world: World, actor_pid: int) -> list[int]:
    """The supervisors between the actor and its engine, outer first."""
    chain: list[int] = []
    [main] = [pid for pid in world.engines() if is_main_process(pid, actor_pid)]
    pid = parent_of(main)
    while pid != actor_pid:
        chain.insert(0, pid)
        pid = parent_of(pid)
    return chain


def start_of(pid: int) -> str:
    """When a process began, which tells it from a later one with its number; "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def is_main_process(pid: int, actor_pid: int) -> bool:
    """Whether `pid` is the engine's main process: the test engine, with two guards between it and the actor."""
    try:
        is_engine = b"engine.py" in (Path("/proc") / str(pid) / "cmdline").read_bytes()
        return is_engine and parent_of(parent_of(parent_of(pid))) == actor_pid
    except OSError:
        return False


def test_whichever_process_is_killed_none_of_the_engine_is_left_and_the_replica_restarts(world: World) -> None:
    """Four replicas, and in each a different one of the four kinds of process is killed.

    Each has arguments longer than Ray keeps of one argument: a restart long after the apply's job needs all of them.
    An apply that finds a fifth replica being restarted waits for it.
    """
    one = member(gpus=1)
    one["engine"]["env"] = {f"TEXT_{number}": os.urandom(30_000).hex() for number in range(4)}
    world.write(model("one", 4, one), model("slow", 1, member(*world.loads)))
    world.loaded.touch()
    assert world.apply_result()["exitCode"] == 0
    assert len(world.engines()) == 13, "five engines; four of them have a child in a session of its own, and an orphan"
    [slow] = [pid for pid in world.engines() if is_main_process(pid, world.actors()["ModelActor:slow:0"]["pid"])]
    victims: dict[str, int] = {}
    old: dict[str, set[int]] = {}
    for number, victim in enumerate(("actor", "outer supervisor", "inner supervisor", "engine")):
        actor = world.actors()[f"ModelActor:one:{number}"]["pid"]
        outer, inner = supervisors_of(world, actor)
        old[victim] = set(tree_of(inner))
        [engine] = [pid for pid in old[victim] if is_main_process(pid, actor)]
        assert len(old[victim] & set(world.engines())) == 3
        chain = {"actor": actor, "outer supervisor": outer, "inner supervisor": inner, "engine": engine}
        victims[victim] = chain[victim]

    for pid in victims.values():
        os.kill(pid, signal.SIGKILL)
    for victim, pids in old.items():
        eventually(lambda left=pids: not left & set(world.engines()), f"none is left below the {victim}")
    eventually(lambda: [row["state"] for row in world.actors().values()] == ["ALIVE"] * 5
               and len(world.engines()) == 13, "the replicas are back")
    assert [row["restarts"] for row in world.actors().values()] == [1, 1, 1, 1, 0]
    for number, victim in enumerate(victims):
        log = world.run("logs", f"one/{number}").stdout
        assert log.splitlines().count("engine rank 0 says hello") == 2, victim

    world.loaded.unlink()
    os.kill(slow, signal.SIGKILL)
    eventually(lambda: world.actors()["ModelActor:slow:0"]["state"] == "RESTARTING", "it is being restarted")
    with world.start("apply", "-f", world.file, "--yes", "--format", "jsonl") as waiting:
        assert waiting.stdout is not None
        for event in map(json.loads, waiting.stdout):
            if event["type"] == "lockReleased":  # by then it has found the replica
                world.loaded.touch()
    [row] = event["outcomes"]
    assert (row["model"], row["replicaId"], row["outcome"]) == ("slow", 0, "ready")
    assert world.actors()["ModelActor:slow:0"]["restarts"] == 1


HANGS_S = 60
"""After half a minute Ray's connection to a stopped process is down; what Ray then sends to it is lost at once."""


def test_a_process_that_hangs_ends_with_its_engine_and_gives_its_cards_back(world: World) -> None:
    """Four actors are stopped; two are named by a verb, one is killed by somebody else, one belongs to a gang."""
    world.write(*(model(name, 1, member("--plain", node=node))
                  for name, node in (("evicted", "a"), ("restarted", "b"), ("killed", "c"))),
                model("gang", 1, member("--plain", role="Leader", node="a"),
                      member("--plain", role="Worker", node="b")))
    assert world.apply_result()["exitCode"] == 0
    pids = {name.split(":")[1]: row["pid"] for name, row in world.actors().items()}
    engines = set(world.engines())
    diagnosis = json.loads(world.run("doctor", "--nodes", "--format", "json").stdout)
    assert diagnosis["nodesExamined"] == 4
    orphans = " ".join(one["message"] for one in diagnosis["findings"] if one["code"] == "ORPHAN_ENGINE")
    assert not [pid for pid in engines if f"process {pid} " in orphans], "nodes of one host see each other's processes"
    stopped = [pids["evicted"], pids["restarted"], pids["killed"], world.cluster.classes(name="GangMember")[0]]
    titles = {Path(f"/proc/{pid}/cmdline").read_bytes()[:15].rstrip(b".") for pid in stopped}
    assert titles <= set(ACTORS), "by these names the doctor knows them"
    began_at = [start_of(pid) for pid in stopped]
    begun = time.monotonic()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    eventually(lambda: time.monotonic() >= begun + HANGS_S, "they hang for long", HANGS_S + 30)
    world.cluster.kill(namespace=world.fleet, name="ModelActor:killed:0")

    evicted = world.run("evict", "evicted/0", "gang/0", "--yes")
    assert evicted.returncode == 0, evicted.stdout + evicted.stderr
    assert "its process did not answer and was killed" in " ".join(evicted.stdout.split())
    restarted = world.run("restart", "restarted/0", "--yes")
    assert restarted.returncode == 0, restarted.stdout + restarted.stderr
    eventually(lambda: len(world.engines()) == 1 and not engines & set(world.engines()), "only the restarted one runs")
    eventually(lambda: not any(start_of(pid) == at for pid, at in zip(stopped, began_at, strict=True)),
               "Ray has reaped what was stopped")
    eventually(lambda: world.cluster.is_free(node="a"), "Ray has back the cards of the evicted ones")
    eventually(lambda: world.cluster.is_free(node="c"), "Ray has back the cards of the killed one")
