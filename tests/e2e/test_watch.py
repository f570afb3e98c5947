"""The watch on a real Ray and a real git repository: pushed revisions run, dead replicas are replaced, once each."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import eventually
from e2e_world import World, member, model

from fleetctl.apply.standby import TICKET

pytestmark = pytest.mark.ray


class Repository:
    """The fleet file of a test in a bare repository."""

    def __init__(self, world: World) -> None:
        self.world, self.bare, self.work = world, world.tmp_path / "repo.git", world.tmp_path / "work"
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(self.bare), folder=world.tmp_path)
        self.git("clone", "--quiet", str(self.bare), str(self.work), folder=world.tmp_path)
        world.file = self.work / "fleet.yaml"

    def git(self, *arguments: str, folder: Path | None = None) -> str:
        named = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", *named, *arguments], cwd=folder or self.work, env=self.world.env, check=True,
                              capture_output=True, text=True).stdout.strip()

    def push(self, *models: dict[str, Any], text: str | None = None) -> str:
        self.world.write(*models)
        if text is not None:
            self.world.file.write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", "change")
        self.git("push", "--quiet", "--force", "origin", "HEAD:main")
        return self.git("rev-parse", "HEAD")


class Watch:
    """`fleetctl watch` in a process of its own."""

    def __init__(self, repository: Repository, name: str) -> None:
        self.out = repository.world.tmp_path / f"{name}.jsonl"
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fleetctl", "watch", "--repo", str(repository.bare), "--path", "fleet.yaml",
                 "--interval", "1s", "--format", "jsonl", "--clone", str(repository.world.tmp_path / f"{name}.git")],
                env=repository.world.env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE)

    def notices(self, about: str, text: str = "") -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.out.read_text().splitlines()]
        return [line for line in lines if line["about"] == about and text in line["text"]]

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=600)
        assert b"Traceback" not in errors
        return self.process.returncode


@pytest.fixture
def watches(world: World) -> Iterator[list[Watch]]:
    started: list[Watch] = []
    yield started
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        if one.process.stderr and not one.process.stderr.closed:
            one.process.communicate()


def test_pushed_revisions_run_and_two_watches_duplicate_nothing(world: World, watches: list[Watch]) -> None:
    repository = Repository(world)
    small, large = (model("one", count, member("--plain", gpus=1)) for count in (1, 2))
    repository.push(small)
    watches += [Watch(repository, "first"), Watch(repository, "second")]
    eventually(lambda: set(world.actors()) == {"ModelActor:one:0"}, "the first revision runs")

    broken = repository.push(text="kind: [")
    eventually(lambda: all(watch.notices("revision", broken[:10]) for watch in watches), "each reports what is broken")
    assert set(world.actors()) == {"ModelActor:one:0"}
    good = repository.push(large)
    eventually(lambda: set(world.actors()) == {"ModelActor:one:0", "ModelActor:one:1"}, "the repaired revision runs")
    assert all(len(watch.notices("revision", "not valid YAML")) == 1 for watch in watches), "it is reported once"

    runs = [job["metadata"] for job in world.jobs() if job["metadata"]["verb"] == "apply"]
    assert any(TICKET in run for run in runs), "a plan was handed to an agent that waited"

    world.cluster.kill(name="ModelActor:one:0", namespace=world.fleet)
    eventually(lambda: set(world.actors()) == {"ModelActor:one:1", "ModelActor:one:2"}, "the dead replica is replaced")
    repository.git("reset", "--quiet", "--hard", "HEAD~2")
    repository.push(model("one", 4, member("--plain", gpus=1)))
    eventually(lambda: all(watch.notices("revision", f"does not follow {good[:10]}") for watch in watches),
               "a rewound branch is refused")
    assert len(world.actors()) == 2

    assert watches[0].end(signal.SIGTERM) == 143
    assert watches[1].end(signal.SIGINT) == 130
    assert set(world.actors()) == {"ModelActor:one:1", "ModelActor:one:2"}


@pytest.mark.long
def test_a_merge_ends_with_what_became_of_it(world: World, watches: list[Watch]) -> None:
    repository = Repository(world)
    good = repository.push(model("one", 1, member("--plain", "--ready-after", "3", gpus=1)))
    watches.append(Watch(repository, "first"))
    eventually(lambda: watches[0].notices("ended", f"{good[:10]}: one/0: ready after "), "the last word of a success")
    assert watches[0].notices("applied", f"{good[:10]}: one 1 starting")
    assert [job["status"] for job in world.jobs() if job["metadata"]["verb"] == "apply"] == ["SUCCEEDED"]
    bad = repository.push(model("one", 1, member("--plain", "--ready-after", "3", gpus=1)),
                          model("two", 1, member("--plain", "--ready-after", "60", "--exit-code", "3", gpus=1)))
    eventually(lambda: watches[0].notices("ended", f"{bad[:10]}: two/0: failed after "), "a crash is told at once")
    [told] = watches[0].notices("ended", "two/0")
    assert "ENGINE_EXITED" in told["text"]
    eventually(lambda: watches[0].notices("blocked", "COOLING"), "the model cools down")
    assert len(watches[0].notices("ended", ": two/")) == 1, "its retries do not tell it again"
    shown = world.run("history", "--fleet", world.fleet, "--format", "json")
    *_, second, first = json.loads(shown.stdout)["runs"]
    assert [(run["command"], run["state"], run["counts"]) for run in (first, second)] == [
        ("watch", "ok", {"ready": 1}), ("watch", "partial", {"failed": 1})], "as the cluster has them now"
    assert watches[0].end(signal.SIGTERM) == 143


@pytest.mark.long
def test_a_watch_that_is_killed_during_an_apply_can_be_replaced_by_another(world: World, watches: list[Watch]) -> None:
    repository = Repository(world)
    repository.push(model("one", 3, member(*world.loads, gpus=1)))
    watches.append(Watch(repository, "first"))
    eventually(world.actors, "the apply has begun")
    watches[0].process.kill()
    world.loaded.touch()
    watches.append(Watch(repository, "second"))
    eventually(lambda: watches[1].notices("good"), "it has started")
    eventually(lambda: sorted(world.actors()) == [f"ModelActor:one:{number}" for number in range(3)]
               and {row["state"] for row in world.actors().values()} == {"ALIVE"}, "all run, each once")
    assert watches[1].end(signal.SIGTERM) == 143
