"""New nodes: none is requested while a joined node does not report its cards yet or has fewer than promised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from applied import apply_plan
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.fleet import Policy
from fleetctl.documents.plan import Plan
from fleetctl.planner.questions.capacity import capacity
from fleetctl.planner.questions.changes import Changes
from fleetctl.planner.questions.occupancy import placement_map
from fleetctl.planner.questions.scenario import Scenario
from fleetctl.planner.questions.what_if import what_if

LABELS = {"pool": "p"}
TYPE = {"name": "p", "node": {"gpus": 2, "vram": "80Gi", "cpus": 16, "memory": "64Gi", "labels": LABELS}, "max": 4}


def planned(*nodes: dict[str, Any], **more: Any) -> Plan:
    """Plan one replica on nodes of the type."""
    fleet = short_fleet({"grow": [TYPE], "models": [{"key": "m", "replicas": 1, "gpus": 2, "vram": "60Gi", **more}]})
    return plan_for(fleet, short_inventory({"nodes": [{"gpus": 2, "labels": LABELS, **node} for node in nodes]}))


def test_a_node_that_has_just_joined_counts_as_the_requested_one() -> None:
    [row] = planned({"name": "a", "joined": "20s"}).blocked
    assert (row.code, row.message) == (
        "WAITS_FOR_NODES", "would run on p nodes that have just joined and do not report their cards yet")
    assert planned({"name": "a", "joined": "20s"}).growth[0].nodes == 0
    assert planned({"name": "a", "joined": "20s"}, replicas=2).growth[0].nodes == 1
    assert planned({"name": "a", "joined": "5m"}).growth[0].nodes == 1, "its cards will not be reported any more"


def test_a_type_offers_no_more_than_its_nodes_have() -> None:
    less: dict[str, Any] = {"name": "a", "vram": "80Gi", "cpus": 16, "memory": "60Gi"}
    [row] = planned(less, memory="62Gi").blocked
    assert row.code == "INSUFFICIENT_MEMORY"
    assert planned({**less, "used": {"GPU": 1}}, memory="60Gi").growth[0].nodes == 1


def test_new_nodes_do_not_change_the_actions_of_a_plan() -> None:
    nodes = [{"name": "a", "vram": "80Gi"}, {"name": "b", "vram": "80Gi"}]
    fleet = short_fleet({"grow": [TYPE], "models": [{"key": "m", "replicas": 5, "gpus": 1}, {"key": "n", "replicas": 2,
                                                                                           "gpus": 2}]})
    without = short_fleet({"models": [{"key": "m", "replicas": 5, "gpus": 1}, {"key": "n", "replicas": 2, "gpus": 2}]})
    inventory = short_inventory({"nodes": [{"gpus": 2, "labels": LABELS, **node} for node in nodes]})
    grown, plain = plan_for(fleet, inventory), plan_for(without, inventory)
    assert grown.actions == plain.actions
    assert grown.certificate.model_copy(update={"on_new_nodes": 0}) == plain.certificate
    assert (grown.certificate.placed, grown.certificate.on_new_nodes) == (3, 3)
    assert grown.summary == plain.summary
    assert plain.growth == []


def test_replicas_that_wait_for_new_nodes_count_against_the_policy() -> None:
    fleet = short_fleet({"grow": [TYPE], "models": [{"key": "m", "replicas": 3, "gpus": 2}]})
    inventory = short_inventory({"nodes": [{"name": "a", "gpus": 2, "labels": LABELS}]})

    def found(**policy: Any) -> list[str]:
        plan = plan_for(replace(fleet, policy=Policy.model_validate(policy)), inventory)
        assert plan.exit_code == (4 if plan.policy else 3)
        return [one.found for one in plan.policy]

    assert found(maxNewReplicas=3, maxNewGpus=6) == []
    assert found(maxNewReplicas=2) == ["creates 3 replicas (2 replicas on new nodes)"]
    assert found(maxNewGpus=5) == ["takes 6 GPUs (2 replicas on new nodes)"]


def test_replicas_of_the_plan_count_as_live_on_new_nodes() -> None:
    types = [{**TYPE, "name": name, "max": most, "node": {**TYPE["node"], "gpus": gpus, "labels": {"pool": name}}}
             for name, gpus, most in (("x", 1, 4), ("y", 4, 2))]
    fleet = short_fleet({"grow": types, "models": [{"key": "m", "replicas": 5, "gpus": 2},
                                                   {"key": "n", "replicas": 2, "vram": "7Gi"}]})
    inventory = short_inventory({"nodes": [{"name": "a", "gpus": 2, "labels": {"pool": "x"}}]})
    plan = plan_for(fleet, inventory)
    assert len(plan.actions) == 1
    assert plan.growth == plan_for(fleet, apply_plan(plan, fleet, inventory)).growth


def test_the_part_of_a_quota_that_no_other_model_uses_gets_new_nodes() -> None:
    models = [{"key": "m", "replicas": 5, "gpus": 1, "priority": 5, "selector": LABELS, "hash": "h"},
              {"key": "n", "replicas": 2, "gpus": 1, "selector": {"pool": "q"}}]
    nodes = [{"name": "a", "gpus": 1, "labels": LABELS}, {"name": "b", "gpus": 1, "labels": LABELS},
             {"name": "c", "gpus": 4, "labels": {"pool": "q"}}]

    fleet = short_fleet({"grow": [TYPE], "models": models, "policy": {
        "quotas": [{"replicas": 6}], "cooldown": {"failures": 3, "first": "2m", "max": "1h"}}})
    for failures in 0, 3:  # after three, node a has cooled and is tried after everything else is placed
        failed = [{"model": "m", "hash": "h", "node": "a", "ago": "30m", "id": at} for at in range(failures)]
        plan = plan_for(fleet, short_inventory({"nodes": nodes, "failures": failed}))
        assert len(plan.actions) == 4
        assert [(row.model, row.replicas, row.on_new_nodes) for row in plan.blocked] == [("m", 3, 2)]


def growing(replicas: int, *running: str) -> Scenario:
    """Nodes `a` and `b` of a type that allows four; a replica with two cards runs on each node in `on`."""
    nodes = [{"name": name, "gpus": 2, "vram": "80Gi", "cpus": 16, "labels": LABELS} for name in ("a", "b")]
    live = [{"model": "m", "id": number, "node": node, "gpus": 2} for number, node in enumerate(running)]
    fleet = short_fleet({"grow": [TYPE], "models": [{"key": "m", "replicas": replicas, "gpus": 2}]})
    return Scenario(fleet, short_inventory({"nodes": nodes, "replicas": live}))


def test_capacity_counts_with_the_nodes_that_may_be_added() -> None:
    [row] = capacity(growing(3, "a")).rows
    assert row.after_plan
    assert row.with_new_nodes
    assert (row.now.fits, row.after_plan.fits, row.with_new_nodes.fits) == (1, 0, 1), "the plan waits for one of two"
    assert [(one.hardware, one.nodes) for one in row.with_new_nodes.where] == [("2xGPU(80Gi)", ["new-p-2"])]
    fixed = short_fleet({"models": [{"key": "m", "replicas": 3, "gpus": 2}]})
    [plain] = capacity(replace(growing(3), fleet=fixed)).rows
    assert plain.with_new_nodes is None


def test_the_map_draws_new_nodes_with_the_replicas_that_would_run_there() -> None:
    drawn = placement_map(growing(3, "a"))
    assert [(node.name, node.new, [piece.replica for card in node.cards for piece in card.pieces])
            for node in drawn.nodes] == [
        ("a", False, ["m/0"] * 2), ("b", False, ["m/1"] * 2), ("new-p-1", True, ["m/2"] * 2)]
    [entry] = drawn.legend
    assert (entry.live, entry.new) == (1, 2)


def test_what_if_counts_replicas_that_would_run_on_new_nodes() -> None:
    answer = what_if(growing(2, "a", "b"), Changes(lose=("a",)), each_node=True)
    assert [(row.name, row.nodes) for row in answer.growth] == [("p", 1)]
    assert (answer.before.on_new_nodes, answer.after.blocked, answer.after.on_new_nodes) == (0, 1, 1)
    assert answer.each_node
    assert [[(model.missing, model.on_new_nodes) for model in loss.models] for loss in answer.each_node] == [[(1, 1)]]
    full = what_if(growing(4, "a", "b"), Changes(), each_node=True).each_node
    assert full
    assert [(model.missing, model.on_new_nodes) for loss in full for model in loss.models] == [(1, 1)]


def test_replicas_that_a_quota_stops_name_the_quota_and_not_the_missing_nodes() -> None:
    models = [{"key": key, "replicas": 2, "gpus": 2, "selector": LABELS, "labels": {"team": "nlp"}} for key in "ab"]
    fleet = short_fleet({"grow": [TYPE], "models": models})

    def blocked(**quota: Any) -> list[tuple[str, int, str]]:
        policy = Policy.model_validate({"quotas": [{"selector": {"team": "nlp"}, **quota}]})
        plan = plan_for(replace(fleet, policy=policy), short_inventory({"nodes": [{"name": "small", "gpus": 1}]}))
        return [(one.code, one.on_new_nodes, one.message) for one in plan.blocked]

    five = "needs 2 GPUs, 1 left of 5 GPUs: 0 live, 4 planned; spec.policy.quotas: team=nlp"
    one = "needs 1 replica, 0 left of 1 replica: 0 live, 1 planned; spec.policy.quotas: team=nlp"
    assert blocked(gpus=5) == [
        ("WAITS_FOR_NODES", 1, f"1 of 2 would run on 2 new p nodes (2 of 4); for the others: {five}")] * 2
    assert blocked(replicas=1) == [
        ("WAITS_FOR_NODES", 1, f"1 of 2 would run on 1 new p node (1 of 4); for the others: {one}"), ("QUOTA", 0, one)]
    assert blocked(gpus=8) == [("WAITS_FOR_NODES", 2, "would run on 4 new p nodes (4 of 4)")] * 2


def test_the_shares_that_replicas_take_on_new_nodes_count_toward_a_quota() -> None:
    fleet = short_fleet({"grow": [TYPE], "models": [{"key": "m", "replicas": 4, "vram": "60Gi", "selector": LABELS}]})
    policy = Policy.model_validate({"quotas": [{"gpus": 2}]})
    [row] = plan_for(replace(fleet, policy=policy), short_inventory({"nodes": [{"name": "small"}]})).blocked
    assert row.on_new_nodes == 2
    assert "for the others: needs 0.75 GPU, 0.5 left of 2 GPUs: 0 live, 1.5 planned; spec.policy.quotas" in row.message


def test_no_node_is_requested_for_a_variant_that_the_target_does_not_ask_for_any_more() -> None:
    """The new replica meets the target; what is left is the minimum of a variant that no node holds."""
    big = {"name": "eight", "gpus": 8, "min": 2}
    variants = [{"name": "of-type", "gpus": 1, "selector": LABELS}, big, {"name": "of-old", "gpus": 1}]
    fleet = short_fleet({"grow": [TYPE], "models": [{"key": "m", "replicas": 1, "variants": variants}]})
    plan = plan_for(fleet, short_inventory({"nodes": [{"name": "old", "gpus": 1}]}))
    assert [action.variant for action in plan.starts] == ["of-old"]
    assert [row.nodes for row in plan.growth] == [0]
    [row] = plan.blocked
    assert (row.code, row.on_new_nodes) == ("INSUFFICIENT_GPU", 0)
