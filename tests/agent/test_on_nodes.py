"""Tasks on nodes: all of them at a time or each by itself, with a time limit, and an answer for each."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.agent import on_nodes
from fleetctl.agent.on_nodes import Asked, NodeAnswer, ask_nodes

LATE = "no worker answered there within 10 s"


class RayStandIn:
    """Tasks that end in order, `together` at each wait of 1 s; those of nodes named `late` never end."""

    def __init__(self, together: int = 1) -> None:
        self.together, self.ended, self.now = together, set[str](), 0.0
        self.options: list[dict[str, Any]] = []

    def remote(self, *task: Any, **options: Any) -> Any:
        self.options.append(options)
        return self if task else lambda _: self

    def ask(self, _: Any, node_id: str, argument: str) -> str:
        assert argument == f"for {node_id}"
        return node_id

    def wait(self, refs: list[str], num_returns: int = 1, timeout: float = 0) -> tuple[list[str], list[str]]:
        if timeout:
            ending = [ref for ref in refs if "late" not in ref][:self.together]
            self.ended.update(ending)
            self.now += 1 if ending else timeout
        done = [ref for ref in refs if ref in self.ended][:num_returns]
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref: str) -> str:
        if ref == "broken":
            raise OSError("first line\nlast line")
        return f"{ref} answered"


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> RayStandIn:
    found = RayStandIn()
    on_nodes._run_once.cache_clear()
    monkeypatch.setattr(on_nodes, "ray", found)
    monkeypatch.setattr(on_nodes, "_ask", found.ask)
    monkeypatch.setattr(on_nodes.time, "monotonic", lambda: found.now)
    return found


def ask(*nodes: str) -> list[NodeAnswer[None]]:
    return list(ask_nodes(print, {node: f"for {node}" for node in nodes}, 10))


def test_every_node_has_an_answer_in_time_or_a_reason(stand_in: RayStandIn) -> None:
    answers = ask("n1", "late-1", "broken", "late-2", "n2")
    assert {one.node_id: one.content or one.trouble for one in answers} == {
        "n1": "n1 answered", "n2": "n2 answered", "broken": "last line", "late-1": LATE, "late-2": LATE}
    assert (stand_in.now, ask()) == (10, [])


def test_results_that_arrive_together_are_taken_with_one_wait(stand_in: RayStandIn) -> None:
    """If they were taken one by one, each wait would check all remaining nodes: 50 million checks for 10,000 nodes."""
    stand_in.together = 50
    nodes = [f"n{number}" for number in range(200)]
    assert sorted(one.node_id for one in ask(*nodes)) == sorted(nodes)
    assert stand_in.now == 200 / 50


def test_a_task_that_a_run_does_not_wait_for_has_no_answer_yet_or_one_or_a_reason(stand_in: RayStandIn) -> None:
    asked = {node: Asked(print, node, f"for {node}", 10) for node in ("n1", "late", "broken")}
    assert [one.answer() for one in asked.values()] == [None] * 3
    stand_in.ended, stand_in.now = {"n1", "broken"}, 9.9
    assert asked["n1"].answer() == NodeAnswer("n1", "n1 answered")
    assert asked["broken"].answer() == NodeAnswer("broken", None, "last line")
    assert asked["late"].answer() is None
    stand_in.now = 10
    assert asked["late"].answer() == NodeAnswer("late", None, LATE)
    assert stand_in.options == [{"max_calls": 1}], "a worker's locks end with its task"
