"""Real rollouts: no model is ever below its target, a failing one serves on, and a killed run is continued."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cluster import eventually
from e2e_world import World, member, model

pytestmark = pytest.mark.ray
FAILING = "m0"


def write(world: World, count: int, *flags: str) -> None:
    """Write models that share a shape; with `flags`, which change it, the engine of one ends during its start."""
    fails = ("--ready-after", "60", "--exit-code", "3")
    world.write(*(model(f"m{number}", 1, member(
        "--plain", *(fails if flags and f"m{number}" == FAILING else flags), gpus=0.1)) for number in range(count)))


def by_model(world: World, *, only_ready: bool = True) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for name, row in world.actors().items():
        if row["state"] == "ALIVE" or not only_ready:
            _, key, number = name.split(":")
            found.setdefault(key, set()).add(int(number))
    return found


@contextmanager
def sampling(world: World, count: int) -> Iterator[list[int]]:
    """Count in the meantime, again and again, the models with a living replica; the first sample is taken before."""
    samples, ended, errors = [len(by_model(world))], threading.Event(), list[BaseException]()

    def sample() -> None:
        try:
            while not ended.wait(0.2):
                samples.append(len(by_model(world)))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()
    assert (errors, min(samples)) == ([], count)
    assert len(samples) > 3


def roll_out(world: World, *flags: str) -> dict[str, Any]:
    done = world.run("rollout", "-f", world.file, "--yes", "--format", "json", *flags)
    assert done.stdout, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    assert summary["exitCode"] == done.returncode, done.stderr
    return summary


def kill_when(world: World, begun: Callable[[], bool], *flags: str) -> None:
    """Kill a rollout as soon as it has begun something; what its agent does goes on."""
    client = world.start("rollout", "-f", world.file, "--yes", *flags)
    try:
        eventually(begun, "the rollout is at work")
    finally:
        client.kill()
        client.communicate()


def assert_all_but_one_are_new(world: World, count: int, summary: dict[str, Any]) -> None:
    assert (summary["exitCode"], [row["model"] for row in summary["outcomes"] if row["outcome"] == "failed"]) == (
        3, [FAILING])
    running = by_model(world, only_ready=False)
    assert {key: len(ids) for key, ids in running.items()} == {f"m{number}": 1 for number in range(count)}
    assert running[FAILING] == {0}, "its old replica serves on"
    assert [key for key, ids in running.items() if ids == {0}] == [FAILING]


def test_a_rollout_killed_while_it_creates_is_continued_and_a_failing_model_serves_on(world: World) -> None:
    count = 3
    write(world, count)
    assert world.apply_result()["exitCode"] == 0
    write(world, count, "--ready-after", "0.1")
    with sampling(world, count):
        kill_when(world, lambda: len(world.actors()) > count, "--at-once", "2")
        assert_all_but_one_are_new(world, count, roll_out(world, "--at-once", "2", "--ignore-cooldown"))


@pytest.mark.long
def test_a_rollout_of_40_models_killed_at_each_stage_ends_the_same(world: World) -> None:
    count, flags = 40, ("--at-once", "10", "--ignore-cooldown")
    write(world, count)
    assert world.apply_result()["exitCode"] == 0
    write(world, count, "--ready-after", "0.1")
    kinds = Counter[str]()

    def has_new_run(verb: str) -> Callable[[], bool]:
        def begun() -> bool:
            now = Counter(job["metadata"]["verb"] for job in world.jobs())
            return now[verb] > kinds[verb]
        kinds.update({verb: Counter(job["metadata"]["verb"] for job in world.jobs())[verb]})
        return begun

    def new_ones() -> int:
        return sum(any(number > 0 for number in ids) for ids in by_model(world).values())

    with sampling(world, count):
        kill_when(world, has_new_run("apply"), *flags)                  # its apply is submitted
        kill_when(world, lambda: len(world.actors()) > count, *flags)   # replicas start
        kill_when(world, lambda: new_ones() > 2, *flags)                # some are ready
        kill_when(world, has_new_run("evict"), *flags)                  # outdated ones are about to end
        assert_all_but_one_are_new(world, count, roll_out(world, *flags))


@pytest.mark.long
def test_of_two_rollouts_at_a_time_the_second_waits_for_the_lock(world: World) -> None:
    write(world, 2)
    assert world.apply_result()["exitCode"] == 0
    world.write(*(model(f"m{number}", 1, member("--plain", "--ready-after", "0.1", gpus=0.1)) for number in range(2)))
    with sampling(world, 2):
        other: subprocess.Popen[str] = world.start("rollout", "-f", world.file, "--yes", "--format", "json")
        mine = roll_out(world)
        out, errors = other.communicate(timeout=600)
    assert (mine["exitCode"], other.returncode) == (0, 0), (mine, out, errors)
    assert {key: len(ids) for key, ids in by_model(world, only_ready=False).items()} == {"m0": 1, "m1": 1}
    assert 0 not in set().union(*by_model(world).values())
