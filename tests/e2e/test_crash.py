"""An apply that dies at any point: the next converges, without a duplicate, an orphan process or a leaked group."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from cluster import HERE, eventually
from e2e_world import World, member, model

pytestmark = pytest.mark.ray

DEATHS = (("between two creates", "before the result"),
          *(pytest.param((fault,), marks=pytest.mark.long)
            for fault in ("after the lock", "right after a create", "while a constructor waits")))
"""Where the agent of an apply dies, and where that of the next apply dies, which does the remaining work."""


def fleet_with_a_gang(world: World) -> None:
    world.write(
        model("one", 1, member("--plain", gpus=0.5, node="a")),
        model("gang", 1, member("--plain", role="Leader", gpus=1), member("--plain", role="Worker", gpus=1)),
    )


def assert_converged(world: World) -> None:
    assert world.apply_result("--lock-timeout", "120s")["exitCode"] == 0
    actors = world.actors()
    assert set(actors) == {"ModelActor:one:0", "ModelActor:gang:0"}
    assert {row["state"] for row in actors.values()} == {"ALIVE"}
    assert world.cluster.groups() == ["ModelActor:gang:0"]
    assert len(world.engines()) == 3
    plan = world.plan()
    assert (plan["actions"], plan["blocked"]) == ([], [])


@pytest.mark.parametrize("faults", DEATHS, ids=", ".join)
def test_after_an_agent_is_killed_at_any_point_the_next_apply_converges(world: World, faults: tuple[str, ...]) -> None:
    fleet_with_a_gang(world)
    for fault in faults:
        killed = world.run_with(fault, "apply", "-f", str(world.file), "--yes", "--parallelism", "1",
                                "--lock-timeout", "120s")
        assert killed.returncode == 1, killed.stderr
        assert "the agent ended without a summary" in killed.stderr
        assert "Traceback" not in killed.stderr
    assert_converged(world)


def test_a_client_that_is_killed_does_not_stop_the_apply(world: World) -> None:
    world.write(model("one", 2, member(*world.loads, gpus=1)))
    client = world.start("apply", "-f", world.file, "--yes", "--parallelism", "1")
    eventually(world.actors, "the first replica is being created")
    client.kill()
    client.communicate()

    world.loaded.touch()
    attached = world.run("apply", "--attach", "-f", world.file)
    assert attached.returncode == 0, attached.stderr
    assert "2 ready" in attached.stdout
    assert set(world.actors()) == {"ModelActor:one:0", "ModelActor:one:1"}


def test_an_agent_frozen_during_another_apply_creates_nothing_when_it_continues(world: World) -> None:
    fleet_with_a_gang(world)
    frozen = subprocess.Popen(
        [sys.executable, str(HERE / "faulty_cli.py"), "frozen between two creates", "apply", "-f", str(world.file),
         "--yes", "--parallelism", "1"],
        env=world.env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=HERE)
    agent = eventually(lambda: stopped_agent(world), "the agent froze")

    held = world.apply()
    assert held.returncode == 5
    assert world.jobs()[0]["submission_id"] in held.stderr + held.stdout

    world.cluster.take_lock_over(fleet=world.fleet)
    assert_converged(world)
    before = {name: row["id"] for name, row in world.actors().items()}

    agent.send_signal(signal.SIGCONT)
    _, messages = frozen.communicate(timeout=600)
    assert "Traceback" not in messages
    assert {name: row["id"] for name, row in world.actors().items()} == before
    assert len(world.engines()) == 3


class Agent:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    def send_signal(self, number: int) -> None:
        import os

        os.kill(self.pid, number)


def stopped_agent(world: World) -> Agent | None:
    """Find the frozen agent among all processes: it runs the agent's package and is stopped."""
    from pathlib import Path

    from cluster import state_of

    jobs = {job["submission_id"] for job in world.jobs()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            environ = (entry / "environ").read_bytes().decode(errors="replace")
            is_agent = b"fleetctl_agent" in command and any(job in environ for job in jobs)
            if is_agent and state_of(int(entry.name)) == "T":
                return Agent(int(entry.name))
        except OSError:
            continue
    return None


def test_two_applies_at_once_never_make_a_duplicate(world: World) -> None:
    world.write(model("one", 2, member(*world.loads, gpus=1)))
    both = [world.start("apply", "-f", world.file, "--yes") for _ in range(2)]
    eventually(lambda: len(world.jobs()) == 2 or any(client.poll() == 5 for client in both), "both have begun")
    world.loaded.touch()
    ended = [(client.communicate(timeout=600), client.returncode) for client in both]
    codes = sorted(code for _, code in ended)
    assert codes in ([0, 5], [0, 0]), ended
    assert set(world.actors()) == {"ModelActor:one:0", "ModelActor:one:1"}
    refused = [messages for (_, messages), code in ended if code == 5]
    assert all("--attach" in messages and "fleetctl stop" in messages for messages in refused)
    assert len(world.engines()) == 2


@pytest.mark.long
def test_a_replica_that_ray_gives_no_worker_is_taken_back_by_the_run_that_created_it(world: World) -> None:
    world.write(model("one", 1, member("--plain", gpus=2, node="a"), schedulingTimeout="2s"))
    done = world.run_with("the node is taken at the last moment", "apply", "-f", str(world.file), "--yes")
    assert done.returncode == 3, done.stderr
    assert "taken back: planning again" in done.stderr
    assert "a has 1 GPU free, 2 needed" in " ".join(done.stderr.split())
    assert set(world.actors()) == {"thief"}
