"""Nodes that are asked in turn: so many at a time, each with its own time limit, and all of them answered."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.agent import on_nodes


class RayStandIn:
    """Tasks that end one by one, in order; those of nodes called `late` never end. The clock moves as one waits."""

    def __init__(self) -> None:
        self.now, self.running, self.most = 0.0, list[str](), 0

    def remote(self, **options: Any) -> Any:
        assert options == {"max_calls": 1}  # so that a worker's locks end with its task
        return lambda _: self

    def ask(self, _: Any, node_id: str, argument: str) -> str:
        self.running.append(argument)
        self.most = max(self.most, len(self.running))
        return argument

    def wait(self, refs: list[str], num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        assert num_returns == 1
        done = [ref for ref in refs if "late" not in ref][:1]
        self.now += 1 if done else timeout
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref: str) -> str:
        self.running.remove(ref)
        return f"{ref} answered"


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_a_few_at_a_time_and_each_within_its_own_time(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    stand_in = RayStandIn()
    monkeypatch.setattr(on_nodes, "ray", stand_in)
    monkeypatch.setattr(on_nodes, "_ask", stand_in.ask)
    monkeypatch.setattr(on_nodes.time, "monotonic", lambda: stand_in.now)
    nodes = [f"n{number}" for number in range(6)]
    answers = list(on_nodes.ask_nodes(print, {node: node for node in nodes}, 10, at_once))
    assert {one.node_id: one.content for one in answers} == {node: f"{node} answered" for node in nodes}
    assert stand_in.most == min(at_once, 6)

    nodes[1:1] = ["late-1", "late-2"]
    answers = list(on_nodes.ask_nodes(print, {node: node for node in nodes}, 10, at_once))
    assert sorted(one.node_id for one in answers) == sorted(nodes)
    assert {one.node_id for one in answers if one.trouble} == {"late-1", "late-2"}
    assert {one.trouble for one in answers} == {"", "no worker answered there within 10 s"}
