"""New nodes: no more are asked for while one that has come does not report its cards, or has less than promised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner_worlds import plan_for, short_fleet, short_inventory

from fleetctl.documents.fleet import Policy
from fleetctl.documents.plan import Plan

LABELS = {"pool": "p"}
TYPE = {"name": "p", "node": {"gpus": 2, "vram": "80Gi", "cpus": 16, "memory": "64Gi", "labels": LABELS}, "max": 4}


def planned(*nodes: dict[str, Any], **more: Any) -> Plan:
    """Plan one replica on nodes of the type."""
    fleet = short_fleet({"grow": [TYPE], "models": [{"key": "m", "replicas": 1, "gpus": 2, "vram": "60Gi", **more}]})
    return plan_for(fleet, short_inventory({"nodes": [{"gpus": 2, "labels": LABELS, **node} for node in nodes]}))


def test_a_node_that_has_just_joined_is_the_one_that_was_asked_for() -> None:
    [row] = planned({"name": "a", "joined": "20s"}).blocked
    assert (row.code, row.message) == (
        "WAITS_FOR_NODES", "would run on p nodes that have just joined, and do not report their cards yet")
    assert planned({"name": "a", "joined": "20s"}).growth[0].nodes == 0
    assert planned({"name": "a", "joined": "20s"}, replicas=2).growth[0].nodes == 1
    assert planned({"name": "a", "joined": "5m"}).growth[0].nodes == 1, "its cards will never be known"


def test_a_type_has_no_more_than_its_nodes_have() -> None:
    less: dict[str, Any] = {"name": "a", "vram": "80Gi", "cpus": 16, "memory": "60Gi"}
    [row] = planned(less, memory="62Gi").blocked
    assert row.code == "INSUFFICIENT_MEMORY"
    assert planned({**less, "used": {"GPU": 1}}, memory="60Gi").growth[0].nodes == 1


def test_a_plan_with_new_nodes_acts_as_the_one_without() -> None:
    nodes = [{"name": "a", "vram": "80Gi"}, {"name": "b", "vram": "80Gi"}]
    fleet = short_fleet({"grow": [TYPE], "models": [{"key": "m", "replicas": 5, "gpus": 1}, {"key": "n", "replicas": 2,
                                                                                           "gpus": 2}]})
    without = short_fleet({"models": [{"key": "m", "replicas": 5, "gpus": 1}, {"key": "n", "replicas": 2, "gpus": 2}]})
    seen = short_inventory({"nodes": [{"gpus": 2, "labels": LABELS, **node} for node in nodes]})
    grown, plain = plan_for(fleet, seen), plan_for(without, seen)
    assert grown.actions == plain.actions
    assert grown.certificate.model_copy(update={"on_new_nodes": 0}) == plain.certificate
    assert (grown.certificate.placed, grown.certificate.on_new_nodes) == (3, 3)
    assert grown.summary == plain.summary
    assert plain.growth == []


def test_what_waits_for_new_nodes_counts_against_the_limits_of_the_policy() -> None:
    fleet = short_fleet({"grow": [TYPE], "models": [{"key": "m", "replicas": 3, "gpus": 2}]})
    seen = short_inventory({"nodes": [{"name": "a", "gpus": 2, "labels": LABELS}]})

    def found(**policy: Any) -> list[str]:
        plan = plan_for(replace(fleet, policy=Policy.model_validate(policy)), seen)
        assert plan.exit_code == (4 if plan.policy else 3)
        return [one.found for one in plan.policy]

    assert found(maxNewReplicas=3, maxNewGpus=6) == []
    assert found(maxNewReplicas=2) == ["creates 3 replicas, 2 of them on new nodes"]
    assert found(maxNewGpus=5) == ["takes 6 GPUs with 2 replicas on new nodes"]
