from __future__ import annotations

import io

import pytest
from rich.console import Console

from fleetctl.documents.plan import Addition, Blocked, InTheWay
from fleetctl.render.report.of_blocked import blocked_details, remedy_lines
from fleetctl.render.report.of_plan import plan_report
from fleetctl.render.report.terminal import print_report
from tests.render.render_plans import plan


def blocked(**parts: object) -> Blocked:
    return Blocked.model_validate({"model": "big", "replicas": 1, "code": "INSUFFICIENT_GPU", "message": "m", **parts})


def in_the_way(replica: str, **parts: object) -> InTheWay:
    return InTheWay.model_validate(
        {"replica": replica, "model": "m", "nodes": ["n1"], "frees": 10_000, "owner": "fleet", "priority": 0, **parts})


@pytest.mark.parametrize(("replicas", "line"), [
    (1, "would fit with 2 more nodes (8xH200, like n1)"),
    (2, "would fit with 2 more nodes (8xH200, like n1); both with 3"),
    (7, "would fit with 2 more nodes (8xH200, like n1); all 7 with 3"),
])
def test_an_addition_gives_the_nodes_for_one_replica_and_for_all(replicas: int, line: str) -> None:
    add = Addition(nodes=2, nodes_for_all=3, shape="8xH200", like="n1")
    assert list(remedy_lines(blocked(replicas=replicas, would_fit=[add]))) == [line]


def test_an_addition_of_two_shapes_names_both_and_the_labels_they_need() -> None:
    adds = [Addition(nodes=1, nodes_for_all=2, shape="64 CPUs", like="head"),
            Addition(nodes=2, nodes_for_all=5, shape="16xH200 of 120Gi", labels={"fabric": "f1"})]
    assert list(remedy_lines(blocked(replicas=2, would_fit=adds))) == [
        ("would fit with 1 more node (64 CPUs, like head) and 2 more nodes (at least 16xH200 of 120Gi) "
         "labeled fabric=f1; both with 2 and 5")]


def test_a_shape_needed_only_for_several_replicas_is_named_with_them() -> None:
    adds = [Addition(nodes=0, nodes_for_all=1, shape="64 CPUs", like="head"),
            Addition(nodes=1, nodes_for_all=2, shape="8xH200", like="n1")]
    assert list(remedy_lines(blocked(would_fit=adds))) == ["would fit with 1 more node (8xH200, like n1)"]
    assert list(remedy_lines(blocked(replicas=2, would_fit=adds))) == [
        ("would fit with 1 more node (8xH200, like n1); both with 1 more node (64 CPUs, like head) and 2 more nodes "
         "(8xH200, like n1)")]


def test_replicas_in_the_way_are_named_with_owner_and_priority() -> None:
    room = [in_the_way("a/0"), in_the_way("b/1", planned=True, priority=9), in_the_way("c/2", surplus=True),
            in_the_way("d/3", surplus=True, priority=None),
            in_the_way("e/4", owner="otherFleet", fleet="prod", priority=None, nodes=["n2"]),
            in_the_way("3f:ModelActor:f", owner="foreign", priority=None, nodes=["n2"])]
    assert list(remedy_lines(blocked(make_room=room))) == [
        ("would fit without a/0, b/1 (not started yet, priority 9), c/2 (surplus), d/3 (not in the file), "
        "e/4 (of fleet prod), 3f:ModelActor:f (not managed): 6 GPUs on n1, n2 (fleetctl removes nothing)")]


def test_many_names_are_cut_and_the_rest_counted() -> None:
    room = [in_the_way(f"m/{number}", frees=0) for number in range(9)]
    assert list(remedy_lines(blocked(make_room=room))) == [
        "would fit without m/0, m/1, m/2, m/3, m/4 and 4 more: on n1 (fleetctl removes nothing)"]


def test_without_a_remedy_the_text_is_its_reason_or_empty() -> None:
    assert list(remedy_lines(blocked(no_remedy="a new node would be cordoned too"))) == [
        "a new node would be cordoned too"]
    assert list(remedy_lines(blocked())) == []


@pytest.mark.parametrize("width", [40, 80, 200])
def test_remedies_are_plain_text_within_the_width(width: int) -> None:
    evil = "[red]x\x1b[2J"
    add = Addition(nodes=1, nodes_for_all=1, shape=evil * 9, like=evil, labels={"k": evil})
    document = plan(blocked=[blocked(would_fit=[add], make_room=[in_the_way(evil, nodes=[evil])])])
    out = io.StringIO()
    print_report(plan_report(document), Console(file=out, width=width))
    text = out.getvalue()
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= width
    assert "1morenode([red]x\\x1b[2J" in "".join(text.split())


def test_a_reason_without_a_best_node_mentions_none() -> None:
    row = {"code": "NODE_SELECTOR_MISMATCH", "nodeCount": 2, "need": "a node with pool=a", "best": "none", "short": "",
           "examples": ["n1", "n2"]}
    assert blocked_details(blocked(reasons=[row])) == (
        "2 nodes: NODE_SELECTOR_MISMATCH, need a node with pool=a (n1, n2)",)
