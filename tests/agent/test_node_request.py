"""The request to Ray's autoscaler: whole nodes, for all fleets together, and none if it is not supported."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import ray.autoscaler.sdk
import ray.autoscaler.v2.utils
from ray_keys import Keys

from fleetctl.agent import node_request
from fleetctl.agent.node_request import ask_for_nodes, run_release
from fleetctl.agent.run_messages import EventStream, NodeType, Plan, PlanFleet, PlanOptions, ReleaseRequest

Requests = list[Counter[tuple[float, str]]]


class Events(list[tuple[str, str]]):
    def emit(self, kind: str, message: str, **_: Any) -> None:
        self.append((kind, message))


def plan(fleet: str, *growth: NodeType, targets: Sequence[str] = ()) -> Plan:
    return Plan("plan-1", PlanFleet(fleet), growth=growth, options=PlanOptions(targets))


def growth_of(keeps: str, nodes: int, pool: str = "h100") -> NodeType:
    return NodeType(pool, {"pool": pool}, 8, 640_000, keeps.split(), nodes, 4)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    sent: Requests = []

    def request_resources(bundles: list[dict[str, float]], bundle_label_selectors: list[dict[str, str]]) -> None:
        sent.append(Counter((bundle["GPU"], labels["pool"])
                            for bundle, labels in zip(bundles, bundle_label_selectors, strict=True)))

    Keys().install(monkeypatch, node_request)
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": node, "Alive": node != "dead"}
                                               for node in ("a", "b", "c", "dead")])
    monkeypatch.setattr(ray.autoscaler.sdk, "request_resources", request_resources)
    monkeypatch.setattr(ray.autoscaler.v2.utils, "is_autoscaler_v2", lambda: True)
    return sent


def test_the_nodes_of_all_fleets_are_requested_and_a_shared_node_once(requests: Requests) -> None:
    events = Events()
    ask_for_nodes(plan("one", growth_of("a b dead", 1)), events)
    ask_for_nodes(plan("two", growth_of("b c", 0), growth_of("", 2, "l4")), events)
    ask_for_nodes(plan("one", growth_of("a b c", 0)), events)
    assert requests == [{(8.0, "h100"): 3}, {(8.0, "h100"): 4, (8.0, "l4"): 2}, {(8.0, "h100"): 3, (8.0, "l4"): 2}]
    assert [message for _, message in events] == [
        "asked Ray's autoscaler for 1 more h100 (at most 4 in all)",
        "asked Ray's autoscaler for 2 more l4 (at most 4 in all)"]


def test_nodes_that_have_joined_since_are_not_requested_again(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = ["a"]
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": node, "Alive": True, "Labels": {"pool": "h100"}}
                                               for node in living])
    ask_for_nodes(plan("one", growth_of("a", 2)), Events())
    living += ["b", "c"]
    ask_for_nodes(plan("two", growth_of("a b c", 1)), Events())
    living += ["d"]
    ask_for_nodes(plan("one", growth_of("b c", 0), targets=["m"]), Events())
    assert requests == [{(8.0, "h100"): 3}, {(8.0, "h100"): 4}, {(8.0, "h100"): 4}]


def test_a_plan_for_some_models_withdraws_no_request(requests: Requests) -> None:
    ask_for_nodes(plan("one", growth_of("a", 2)), Events())
    ask_for_nodes(plan("one", growth_of("b", 0), targets=["m"]), Events())
    ask_for_nodes(plan("one"), Events())
    assert requests == [{(8.0, "h100"): 3}, {(8.0, "h100"): 4}, {}]


def test_a_fleet_that_needs_no_node_sends_no_request(requests: Requests) -> None:
    ask_for_nodes(plan("one", growth_of("", 0)), Events())
    ask_for_nodes(plan("one"), Events())
    assert requests == []


def test_an_autoscaler_without_label_support_gets_no_request(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events()
    monkeypatch.setattr(ray.autoscaler.v2.utils, "is_autoscaler_v2", lambda: False)
    ask_for_nodes(plan("one", growth_of("a", 1)), events)
    monkeypatch.setattr(ray.autoscaler.sdk, "request_resources", lambda num_cpus=None, bundles=None: None)
    ask_for_nodes(plan("one", growth_of("a", 1)), events)
    assert requests == []
    assert [kind for kind, _ in events] == ["nodesNotRequested"] * 2
    assert "version 2" in events[0][1]
    assert "2.52 or later" in events[1][1]


def released(fleet: str, busy: set[str], monkeypatch: pytest.MonkeyPatch, *, dry_run: bool = False) -> list[str]:
    monkeypatch.setattr(node_request, "busy_nodes", lambda: busy)
    events = EventStream()
    lines: list[str] = []
    monkeypatch.setattr(events, "emit", lambda kind, message, **_: lines.append(message))
    assert run_release(ReleaseRequest(fleet, dry_run, "j"), events) == 0
    return lines[1:]


def test_a_released_fleet_requests_no_nodes(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_for_nodes(plan("old", growth_of("a b dead", 2), growth_of("", 1, "l4")), Events())
    ask_for_nodes(plan("two", growth_of("c", 0)), Events())
    del requests[:]
    lines = ["h100: 2 new, 1 unused and 1 in use no longer requested",
             "l4: 1 new, 0 unused and 0 in use no longer requested"]
    assert released("old", {"a", "c"}, monkeypatch, dry_run=True) == [*lines, "nothing was changed"]
    assert requests == []
    assert released("old", {"a", "c"}, monkeypatch) == [
        *lines, "nothing was ended; a node that no other fleet requests goes once it is idle"]
    assert requests == [{(8.0, "h100"): 1}], "node c is requested by the other fleet"
    assert released("old", set(), monkeypatch) == ["fleet old requests no nodes; fleets that do: two"]


def test_a_node_that_joined_counts_for_one_fleet_when_another_is_released(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = ["a"]
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": node, "Alive": True, "Labels": {"pool": "h100"}}
                                               for node in living])
    ask_for_nodes(plan("current", growth_of("a", 1)), Events())
    ask_for_nodes(plan("old", growth_of("a", 1)), Events())
    living += ["b"]
    assert released("old", {"b"}, monkeypatch)[0] == "h100: 1 new, 1 unused and 0 in use no longer requested"
    assert requests[-1] == {(8.0, "h100"): 2}, "a and b, on which only the current fleet runs"


def test_the_part_that_an_agent_of_the_last_release_stored_is_read(requests: Requests) -> None:
    row = {"name": "h100", "labels": {"pool": "h100"}, "gpus": 8, "cpus": 640_000, "keeps": ["a", "b"], "nodes": 1,
           "max": 4, "replicas": [{"model": "m", "replicas": 1}]}
    node_request._internal_kv_put(b"grow:old", json.dumps([row]).encode(), namespace=node_request.KV_NAMESPACE)
    ask_for_nodes(plan("new", growth_of("b c", 0)), Events())
    assert requests == [{(8.0, "h100"): 4}]


def withdrawn(fleet: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Withdraw a fleet's part, by the verb or by an apply that needs no node."""
    if by == "release":
        released(fleet, set(), monkeypatch)
    else:
        ask_for_nodes(plan(fleet), Events())


@pytest.mark.parametrize("by", ["release", "apply"])
def test_a_withdrawal_that_is_killed_before_the_request_is_repeated(
    requests: Requests, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Ray keeps the old request, and with it the nodes, until there is another."""
    ask_for_nodes(plan("old", growth_of("a", 2)), Events())
    del requests[:]
    with monkeypatch.context() as killed:
        killed.setattr(node_request, "request_nodes", lambda: sys.exit(137))
        with pytest.raises(SystemExit):
            withdrawn("old", by, monkeypatch)
    withdrawn("old", by, monkeypatch)
    assert requests == [{}]
    withdrawn("old", by, monkeypatch)
    assert requests == [{}], "it is withdrawn once"
    assert released("old", set(), monkeypatch) == ["fleet old requests no nodes; fleets that do: none"]


@pytest.mark.parametrize(("seen", "if_never", "over", "asked"), [
    ([7, 7, 8], False, False, 3), ([7], False, True, 4), ([0], False, False, 1), ([0], True, True, 4),
    ([0, 0, 3], True, False, 3), ([None], True, False, 1),
])
def test_an_autoscaler_is_silent_if_it_looks_at_no_newer_state_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch, seen: list[int | None], if_never: bool, over: bool, asked: int
) -> None:
    now, states = [0.0], list[int | None]()

    def state_seen() -> int | None:
        states.append(seen[min(len(states), len(seen) - 1)])
        return states[-1]

    monkeypatch.setattr(node_request, "state_seen", state_seen)
    monkeypatch.setattr(node_request, "time", SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda _: now.__setitem__(0, now[0] + node_request.ROUND_S / 2)))
    assert node_request.Rounds().are_over(if_never=if_never) is over
    assert len(states) == asked
    stopped = Event()
    stopped.set()
    assert not node_request.Rounds().are_over(stopped, if_never=True), "an interrupted run does not wait"
