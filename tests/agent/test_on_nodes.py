"""Tasks on nodes: a limited number at a time, each with its own time limit, and an answer for each."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.agent import on_nodes


class RayStandIn:
    """Tasks that end in order, `together` at each wait of 1 s; those of nodes named `late` never end."""

    def __init__(self, together: int = 1) -> None:
        self.together, self.ended = together, set[str]()
        self.now, self.running, self.most = 0.0, list[str](), 0

    def remote(self, **options: Any) -> Any:
        assert options == {"max_calls": 1}  # so that a worker's locks end with its task
        return lambda _: self

    def ask(self, _: Any, node_id: str, argument: str) -> str:
        self.running.append(argument)
        self.most = max(self.most, len(self.running))
        return argument

    def wait(self, refs: list[str], num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        if timeout:
            ending = [ref for ref in refs if "late" not in ref][:self.together]
            self.ended.update(ending)
            self.now += 1 if ending else timeout
        done = [ref for ref in refs if ref in self.ended][:num_returns]
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref: str) -> str:
        self.running.remove(ref)
        return f"{ref} answered"


@pytest.mark.parametrize("parallel", [1, 3, 100])
def test_a_few_tasks_run_at_a_time_each_with_its_own_time_limit(monkeypatch: pytest.MonkeyPatch, parallel: int) -> None:
    stand_in = RayStandIn()
    monkeypatch.setattr(on_nodes, "ray", stand_in)
    monkeypatch.setattr(on_nodes, "_ask", stand_in.ask)
    monkeypatch.setattr(on_nodes.time, "monotonic", lambda: stand_in.now)
    nodes = [f"n{number}" for number in range(6)]
    answers = list(on_nodes.ask_nodes(print, {node: node for node in nodes}, 10, parallel))
    assert {one.node_id: one.content for one in answers} == {node: f"{node} answered" for node in nodes}
    assert stand_in.most == min(parallel, 6)

    nodes[1:1] = ["late-1", "late-2"]
    answers = list(on_nodes.ask_nodes(print, {node: node for node in nodes}, 10, parallel))
    assert sorted(one.node_id for one in answers) == sorted(nodes)
    assert {one.node_id for one in answers if one.trouble} == {"late-1", "late-2"}
    assert {one.trouble for one in answers} == {"", "no worker answered there within 10 s"}


def test_results_that_arrive_together_are_taken_with_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """If they were taken one by one, each wait would check all remaining nodes: 50 million checks for 10,000 nodes."""
    stand_in = RayStandIn(together=50)
    monkeypatch.setattr(on_nodes, "ray", stand_in)
    monkeypatch.setattr(on_nodes, "_ask", stand_in.ask)
    monkeypatch.setattr(on_nodes.time, "monotonic", lambda: stand_in.now)
    nodes = [f"n{number}" for number in range(200)]
    answers = list(on_nodes.ask_nodes(print, {node: node for node in nodes}, 10, 1000))
    assert sorted(one.node_id for one in answers) == sorted(nodes)
    assert stand_in.now == 200 / 50
