"""Revisions loaded in a subprocess: the same fleet, a time limit, and a watch that goes on beside an endless rule."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn, serve
from ended_processes import read_until_all_end
from small_watcher import FLEET, NOW, advance

from fleetctl.apply.prepare import ApplyTask
from fleetctl.documents.events import RunSummary
from fleetctl.errors import LockHeld, RevisionError
from fleetctl.fleetfile import rule_schema
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.watch import load_process
from fleetctl.watch.load_process import Inputs, inspect_here, inspect_in_subprocess
from fleetctl.watch.source import Branch, Files, WatchedSource
from fleetctl.watch.step import RESYNC_S, Notify, WatchState
from fleetctl.watch.watcher import Watcher
from fleetctl.workflow.invocation import Invocation, Where

pytestmark = pytest.mark.slow

ENDLESS = json.dumps({"properties": {"metadata": {"properties": {"name": {"pattern": "^([a-z]+)+$"}}}}})
NAME = "a" * 40 + "-0"
WITH_RULES = (FLEET % NAME).replace("spec:\n", "spec:\n  policy: {schemas: [rules.json]}\n")


@pytest.fixture(autouse=True)
def _start_in_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the processes may be slow to start; their own limits begin after that."""
    for module in (rule_schema, load_process):
        monkeypatch.setattr(module, "GRACE_S", 120.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fleet.yaml").write_text(WITH_RULES)
    (tmp_path / "rules.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_fleet_and_its_problems_are_identical(folder: Path) -> None:
    here = inspect_fleet(["fleet.yaml"])
    assert here.fleet
    assert inspect_in_subprocess(Inputs(("fleet.yaml",))) == replace(here, documents=())
    (folder / "fleet.yaml").write_text(WITH_RULES.replace("replicas: 3", "replicas: x"))
    found = inspect_in_subprocess(Inputs(("fleet.yaml", "gone.yaml")))
    assert found == inspect_fleet(["fleet.yaml", "gone.yaml"])
    assert [problem.code for problem in found.errors] == ["FL001", "FL022"]


def fake_python(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_loading_that_notices_no_end_is_killed_with_its_children(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    fake_python(monkeypatch, folder, f"(echo begun; exec sleep 1000) > {folder}/pipe & wait")
    monkeypatch.setattr(load_process, "LONGEST_S", 0.1)
    monkeypatch.setattr(load_process, "GRACE_S", 0.2)
    loaded = inspect_in_subprocess(Inputs(("fleet.yaml",)))
    assert [str(problem) for problem in loaded.problems] == [
        "fleet.yaml:1:1: error FL087: loading the fleet was ended after 0.3 s"]
    os.set_blocking(reader, True)
    while os.read(reader, 100):  # ends when no process has the pipe open
        pass
    os.close(reader)


def test_a_loading_at_its_limit_ends_the_git_that_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    """Git has a session of its own, so killing the loading process alone would leave it behind."""
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(f"#!/bin/sh\necho begun > {folder}/pipe\nexec sleep 1000 > {folder}/pipe\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    source = Branch("gone", "main", ("fleets",), tmp_path, {"PATH": os.environ["PATH"]}, time.time,
                    inspect=inspect_in_subprocess)
    limit_s, begun = 0.5, b""
    while not begun:  # the process may take longer than the limit to start
        monkeypatch.setattr(load_process, "LONGEST_S", limit_s := 2 * limit_s)
        monkeypatch.setattr(load_process, "GRACE_S", 60.0)
        loaded = source.load("0" * 40)
        assert "loading the fleet was ended after" in loaded.errors[0].message
        begun = read_until_all_end(reader)
    os.close(reader)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce it")
def test_the_limit_of_memory_leaves_git_its_address_space(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    """Git maps a pack into its address space: one of 1 GiB is no reason to refuse a commit."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(f"#!/bin/sh\nulimit -v > {folder}/given\nexit 1\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    source = Branch("gone", "main", ("fleets",), tmp_path, {"PATH": os.environ["PATH"]}, time.time,
                    inspect=inspect_in_subprocess)
    with pytest.raises(RevisionError):
        source.load("0" * 40)
    own = subprocess.run(["/bin/sh", "-c", "ulimit -v"], capture_output=True, check=True).stdout
    assert (folder / "given").read_bytes() == own
    monkeypatch.setattr(load_process, "MAX_MEMORY_BYTES", 8 << 20)
    with pytest.raises(RevisionError, match="the loading process ended with"):
        inspect_in_subprocess(Inputs(("fleet.yaml",)))


@pytest.mark.parametrize(("script", "message"), [
    ("echo MemoryError >&2; exit 1", "ended with 1: MemoryError"), ("kill -9 $$", "ended with -9"),
])
def test_a_process_that_dies_judges_nothing(
    monkeypatch: pytest.MonkeyPatch, folder: Path, script: str, message: str
) -> None:
    fake_python(monkeypatch, folder, script)
    with pytest.raises(RevisionError, match=message):
        inspect_in_subprocess(Inputs(("fleet.yaml",)))


@pytest.fixture
def cluster() -> Iterator[ClusterStandIn]:
    stand_in = ClusterStandIn()
    stand_in.add_node("a")
    with serve(stand_in):
        yield stand_in


def watcher_of(cluster: ClusterStandIn, source: WatchedSource, now: list[float]) -> Watcher:
    def run(task: ApplyTask) -> RunSummary:
        raise LockHeld("another apply runs")

    invocation = Invocation({"PATH": os.environ["PATH"]}, Path("/"), lambda: NOW, lambda: b"", lambda *_: None,
                            lambda: 0)
    return Watcher(invocation, source, Where(None, cluster.url), lambda: now[0], run, WatchState(30))


def news(watcher: Watcher) -> list[tuple[str, str]]:
    """Run one round; return its news about revisions."""
    return [(one.about, one.text) for one in advance(watcher)
            if isinstance(one, Notify) and one.about in ("source", "revision", "good")]


class Upstream:
    """A repository to which commits are added, and a clone in which a watch reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1",
                        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
                        "GIT_COMMITTER_EMAIL": "a@b"}
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=self.folder, env=self.environ, check=True, text=True,
                              capture_output=True).stdout.strip()

    def commit(self, rules: str, fleet: str = WITH_RULES) -> str:
        (self.folder / "fleets").mkdir(exist_ok=True)
        (self.folder / "fleets/lab.yaml").write_text(fleet)
        (self.folder / "fleets/rules.json").write_text(rules)
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")


def test_a_watch_goes_on_beside_rules_without_an_end(
    cluster: ClusterStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said once, the last good one stays in force, also after a restart; the next good commit is used."""
    (tmp_path / "upstream").mkdir()
    upstream, now, loads = Upstream(tmp_path / "upstream"), [0.0], list[str]()

    def inspect(inputs: Inputs) -> load_process.LoadedFleet:
        assert inputs.clone
        loads.append(inputs.clone.commit.id)
        return inspect_here(inputs)

    def started() -> Watcher:
        return watcher_of(cluster, Branch(str(upstream.folder), "main", ("fleets",), tmp_path / "clone",
                                          upstream.environ, time.time, inspect=inspect), now)

    monkeypatch.setattr(rule_schema, "LONGEST_S", 1.0)
    good, watcher = upstream.commit("{}"), started()
    monkeypatch.setattr(rule_schema, "LONGEST_S", 30.0)
    assert news(watcher) == [("good", good[:10])]
    monkeypatch.setattr(rule_schema, "LONGEST_S", 1.0)
    bad = upstream.commit(ENDLESS)
    [(about, text)] = news(watcher)
    assert (about, text.startswith(bad[:10]), "ended after 1 s" in text) == ("revision", True, True)
    assert news(watcher) == news(watcher) == []
    assert loads == [good, bad], "it is not loaded again at each look"
    now[0] += RESYNC_S
    assert news(watcher) == []
    assert loads.pop() == bad
    again = started()
    assert {about for about, _ in news(again)} == {"revision", "good"}
    assert again.state.good == good
    monkeypatch.setattr(rule_schema, "LONGEST_S", 30.0)
    better = upstream.commit("{}", WITH_RULES.replace("replicas: 3", "replicas: 4"))
    for one in (watcher, again):
        assert ("good", better[:10]) in news(one)
        assert one.good
        assert one.good.sound().models[0].replicas == 4


def test_a_changed_rule_on_the_disk_is_read_at_once(
    cluster: ClusterStandIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = watcher_of(cluster, Files(("fleet.yaml",), inspect_in_subprocess), [0.0])
    assert [about for about, _ in news(watcher)] == ["good"]
    assert news(watcher) == [], "that the rules are watched, too, is no news"
    monkeypatch.setattr(load_process, "LONGEST_S", 0.05)
    (folder / "rules.json").write_text(ENDLESS)
    [(about, text)] = news(watcher)
    assert (about, "ended after" in text) == ("revision", True)
    assert news(watcher) == [], "it is said once"
    monkeypatch.setattr(load_process, "LONGEST_S", 60.0)
    (folder / "rules.json").write_text('{"required": ["spec"]}')
    assert ("revision", "") in news(watcher)
