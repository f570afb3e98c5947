"""A process that does not answer: what the explicit verbs find, do and say. Ray's table and tasks are simulated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from marked_processes import FAMILY, MARK, eventually, marked

from fleetctl.agent import ending
from fleetctl.agent.cluster import ActorRecord
from fleetctl.agent.on_nodes import NodeAnswer
from fleetctl.agent.report import Refused

RECORD = ActorRecord("DEAD", True, "{}", "", worker_id="w", pid=4242, node_id="n1")


class Ray:
    """Its table has the worker as alive until it is killed on its node, or for some seconds; `answer` is the node's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.alive_until, self.nodes = 0.0, 1e9, {"n1": {}}
        self.answer = NodeAnswer[list[str]]("n1", [])
        self.asked: list[tuple[str, int]] = []
        monkeypatch.setattr(ending.cluster, "worker_is_alive", lambda worker_id: worker_id == "w" and (
            self.now < self.alive_until))
        monkeypatch.setattr(ending.cluster, "alive_nodes", lambda: self.nodes)
        monkeypatch.setattr(ending, "Asked", self.ask)

    def ask(self, task: Any, node_id: str, pid: int, timeout_s: float) -> Any:
        assert task is ending.end_process
        self.asked.append((node_id, pid))
        answers = iter([None, self.answer])
        return SimpleNamespace(answer=lambda: next(answers))

    def clock(self) -> float:
        self.now += 1
        return self.now

    def result(self) -> bool | str:
        """Whether the process had to be killed, or why it may still run."""
        steps = ending.await_end(RECORD, "node-a", self.clock)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            killed: bool = end.value
            return killed
        except Refused as why:
            return f"{why.code}: {why}"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Ray:
    return Ray(monkeypatch)


def test_a_process_that_ends_by_itself_or_with_its_node_is_left_to_ray(table: Ray) -> None:
    table.alive_until = 3
    assert table.result() is False
    table.alive_until, table.nodes = 1e9, {}
    assert table.result() is False
    assert table.asked == []


def test_a_process_that_does_not_end_is_killed_on_its_node(table: Ray) -> None:
    assert table.result() is True
    assert table.asked == [("n1", 4242)]


def test_what_still_runs_is_named_and_so_is_a_node_that_does_not_answer(table: Ray) -> None:
    table.answer = NodeAnswer("n1", ["4242 (ray::ModelActor)", "4250 (vllm serve)"])
    assert table.result() == ("STILL_RUNNING: its process 4242 on node-a does not answer and cannot be killed yet: "
                              "4242 (ray::ModelActor), 4250 (vllm serve) still run")
    table.answer = NodeAnswer("n1", None, "no worker answered there within 60 s")
    assert table.result() == (
        "STILL_RUNNING: its process 4242 on node-a does not answer, nor does the node: no worker answered there within "
        "60 s; `fleetctl doctor --nodes` shows whether its engine still runs")


@pytest.mark.slow
def test_a_stopped_process_ends_with_everything_below_it(monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", FAMILY], env={**os.environ, MARK: mark},
                               stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"family complete\n"
    eventually(lambda: len(marked(mark)) == 3, "the family is complete")
    children = set(marked(mark)) - {process.pid}
    process.send_signal(signal.SIGSTOP)
    assert ending.end_process(process.pid) == [], "not a child of this node's raylet, so another process"
    assert process.pid in marked(mark)
    monkeypatch.setattr(ending.os, "getppid", os.getpid)
    assert ending.end_process(process.pid) == []
    assert len(children & set(marked(mark))) == 1, "the deliberately orphaned one was below no guard"
    process.wait()
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)
