"""An agent that waits for a plan, on a real Ray: it carries out one plan, and whoever is killed when, none is lost or
carried out twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from cluster import eventually, state_of
from e2e_world import World, member, model
from faults import faulty_package

from fleetctl.apply import standby
from fleetctl.apply.prepare import Starter
from fleetctl.apply.standby import StandbyKeeper, find_standby
from fleetctl.cli.verb import new_job_id
from fleetctl.documents.plan import PlanFleet
from fleetctl.inventory.client import DashboardClient

pytestmark = pytest.mark.ray


class Waiting:
    """A watch's agent that waits, and the process of that agent."""

    def __init__(self, world: World) -> None:
        self.world, self.fleet = world, PlanFleet(name=world.fleet, namespace=world.fleet)
        self.keeper = StandbyKeeper(Starter("a watch"), partial(new_job_id, "apply"), monotonic)

    def start(self) -> str:
        with DashboardClient(self.world.cluster.address) as client:
            self.keeper.look_now()
            self.keeper.keep(client, self.fleet)
            job = self.keeper.job
            eventually(lambda: find_standby(client, self.fleet) == job, "an agent waits")
        assert job
        return job

    def pid(self) -> int:
        """The process of the agent: its command line has the name of its request."""
        name = f"{self.keeper.job}-request".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if name in words and b"-m" in words and state_of(int(entry.name)) not in "ZX":
                return int(entry.name)
        raise AssertionError("the agent does not run")


@pytest.fixture
def waiting(world: World, monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """An agent that lives has time to take its plan, however busy this machine is."""
    monkeypatch.setattr(standby, "TAKEN_S", 120.0)
    world.write(model("one", 2, member("--plain", gpus=1)))
    return Waiting(world)


@contextmanager
def shipped(fault: str) -> Iterator[None]:
    """Ship an agent with a fault, with every job."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleetctl.apply.jobs.agent_package", faulty_package(fault))
        yield


def jobs_of(world: World) -> dict[str, dict[str, Any]]:
    return {job["submission_id"]: job for job in world.jobs()}


def test_a_plan_that_is_handed_over_is_a_run_like_any_other(world: World, waiting: Waiting) -> None:
    job = waiting.start()
    [shown] = json.loads(world.run("history", "--fleet", world.fleet, "--format", "json").stdout)["runs"]
    assert (shown["verb"], shown["state"], shown["message"]) == ("standby", "running", "its agent waits for a plan")

    saved = world.tmp_path / "saved.fleetplan"
    assert world.run("plan", "-f", world.file, "--out", saved).returncode == 0
    done = world.run("apply", saved, "--yes")
    assert done.returncode == 0, done.stderr
    assert f"{job}; it continues" in done.stderr
    assert set(world.actors()) == {"ModelActor:one:0", "ModelActor:one:1"}

    [shown] = json.loads(world.run("history", "--fleet", world.fleet, "--format", "json").stdout)["runs"]
    assert {key: shown[key] for key in ("id", "verb", "state", "command", "create", "planId", "counts")} == {
        "id": job, "verb": "apply", "state": "ok", "command": "apply", "create": 2, "counts": {"ready": 2},
        "planId": json.loads(saved.read_text())["planId"]}
    assert shown["who"] != "a watch"
    assert world.run("apply", saved, "--yes").returncode == 6, "a saved plan is applied once"


def test_an_agent_that_is_dead_or_frozen_loses_no_plan(
    world: World, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "TAKEN_S", 1.0)
    job = waiting.start()
    os.kill(waiting.pid(), signal.SIGSTOP)
    done = world.apply()
    assert done.returncode == 0, done.stderr
    assert f"job {job}, whose agent waited for a plan, does not take it and is ended" in done.stderr
    assert (jobs_of(world)[job]["metadata"]["verb"], jobs_of(world)[job]["status"]) == ("standby", "STOPPED")
    assert set(world.actors()) == {"ModelActor:one:0", "ModelActor:one:1"}

    world.write(model("one", 3, member("--plain", gpus=1)))
    killed = waiting.start()
    assert killed != job
    os.kill(waiting.pid(), signal.SIGKILL)
    assert world.apply().returncode == 0
    assert jobs_of(world)[killed]["metadata"]["verb"] == "standby"
    assert set(world.actors()) == {"ModelActor:one:0", "ModelActor:one:1", "ModelActor:one:2"}


@pytest.mark.parametrize(("fault", "code"), [
    ("before a plan that was taken is announced", 0), ("right after a plan was announced", 1),
    pytest.param("between two creates", 1, marks=pytest.mark.long),
    pytest.param("before the result", 1, marks=pytest.mark.long)])
def test_an_agent_that_is_killed_once_it_has_a_plan_doubles_nothing(
    world: World, waiting: Waiting, fault: str, code: int
) -> None:
    with shipped(fault):
        job = waiting.start()
        done = world.apply("--parallelism", "1")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert world.apply("--lock-timeout", "120s").returncode == 0
    assert set(world.actors()) == {"ModelActor:one:0", "ModelActor:one:1"}
    assert len(world.engines()) == 2
    assert job in jobs_of(world)


def test_only_an_agent_of_this_release_gets_a_plan_and_another_ends(world: World, waiting: Waiting) -> None:
    with shipped("no wait for dirty cards"):
        other = waiting.start()
    done = world.apply()
    assert done.returncode == 0, done.stderr
    assert other not in done.stderr
    assert jobs_of(world)[other]["status"] == "RUNNING"
    new = Waiting(world).start()
    eventually(lambda: jobs_of(world)[other]["status"] == "SUCCEEDED", "it ends when a watch of this release begins")
    [shown] = json.loads(world.run("history", "show", other, "--format", "json").stdout),
    assert (shown["state"], shown["message"]) == ("ok", "a watch of another release has taken over; no plan came")
    assert jobs_of(world)[new]["status"] == "RUNNING"


def test_an_agent_ends_itself_when_its_watch_is_gone(world: World, waiting: Waiting) -> None:
    with shipped("a watch is gone after two seconds"):
        job = waiting.start()
        eventually(lambda: jobs_of(world)[job]["status"] == "SUCCEEDED", "it has ended")
        assert waiting.start() != job, "the watch starts another"
