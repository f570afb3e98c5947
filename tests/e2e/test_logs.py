"""Logs of a model on a real Ray: merged, followed through a restart, and joined by a replica that starts later."""

from __future__ import annotations

import os
import re
import signal

import pytest
from e2e_world import World, member, model

pytestmark = pytest.mark.ray

HELLO = "engine rank 0 says hello"


def test_logs_of_a_model_are_followed_through_a_restart_and_joined_by_a_new_replica(world: World) -> None:
    one = model("one", 1, member("--plain", node="a"))
    world.write(one)
    assert world.apply_result()["exitCode"] == 0
    follow = world.start("logs", "one", "--follow")
    assert follow.stdout is not None
    lines: list[str] = []

    def read_until(count: int) -> None:
        while sum(line.endswith(HELLO) for line in lines) < count:
            line = follow.stdout.readline() if follow.stdout else ""
            assert line, follow.communicate()
            lines.append(line.rstrip("\n"))

    try:
        read_until(1)
        os.kill(world.engines()[0], signal.SIGKILL)
        read_until(2)
        world.write({**one, "replicas": 2})
        assert world.apply_result()["exitCode"] == 0
        read_until(3)
        follow.send_signal(signal.SIGINT)
        rest, errors = follow.communicate(timeout=600)
    finally:
        follow.kill()
    assert (follow.returncode, rest, errors) == (130, "", "")
    assert [line for line in lines if line.endswith(HELLO)] == [f"[0] {HELLO}", f"[0] {HELLO}", f"[1] {HELLO}"]

    shown = world.run("logs", "one", "--timestamps", "--since", "10m")
    times = [line.split()[1] for line in shown.stdout.splitlines()]
    assert times == sorted(times)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time) for time in times)
    assert [line.partition(" ")[0] + line[line.index("Z "):][1:] for line in shown.stdout.splitlines()] == lines
    earlier = sum(line.startswith("[0]") for line in lines) - 1
    assert world.run("logs", "one/0", "--tail", "1").stderr == f"note: ... {earlier} earlier lines are not shown\n"
