"""A described model is kept off nodes whose cards certainly cannot hold it, and what may not fit is a warning."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import cases
from short_forms import plan_for, short_inventory

from fleetctl.documents.fleet import GrowType, NodePolicy
from fleetctl.documents.plan import Plan
from fleetctl.documents.quantity import parse_bytes
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.questions.capacity import capacity
from fleetctl.planner.questions.changes import Changes
from fleetctl.planner.questions.scenario import Scenario
from fleetctl.planner.questions.what_if import lose_each, what_if
from tests.fleetfile.memory_tree import inspect
from tests.sizing.test_public_models import described

NODES = [{"name": "big", "gpus": 8, "vram": "80Gi", "labels": {"ray.io/accelerator-type": "H100"}},
         {"name": "small", "gpus": 4, "vram": "24Gi", "labels": {"ray.io/accelerator-type": "L4"}}]


def fleet(model: str, *args: str, gpus: int = 1, replicas: int = 1, check: str = "block") -> ResolvedFleet:
    """Return a fleet with one described model on vLLM."""
    member = {"resources": {"gpus": gpus}, "engine": {"command": ["vllm", "serve", "m"], "args": list(args)}}
    document = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {"models": [{
        "key": model, "replicas": replicas, "model": {"description": "m.json"}, "memoryCheck": check,
        "workers": [{"name": "main", "members": [member]}]}]}}
    return inspect({"fleet.yaml": json.dumps(document), "m.json": json.dumps(described(model).as_json())}).sound()


def plan(*args: Any, nodes: list[dict[str, Any]] = NODES, **options: Any) -> Plan:
    """Plan such a fleet on empty nodes."""
    return plan_for(fleet(*args, **options), short_inventory({"nodes": nodes}))


def test_405b_on_one_card_is_blocked_with_the_shape_that_would_hold_it() -> None:
    found = plan("llama-3.1-405b")
    assert not found.actions
    (blocked,) = found.blocked
    assert blocked.code == "MODEL_TOO_LARGE"
    assert "755.96Gi of weights on its card, and H100 has 80Gi" in blocked.message
    assert "(it would fit on 8 x H100 with fp8, --tensor-parallel-size 8)" in blocked.message
    assert not blocked.would_fit
    assert "no card of this fleet is large enough for this shape" in blocked.no_remedy


def test_a_context_that_certainly_does_not_fit_is_told_with_the_length_that_does() -> None:
    (blocked,) = plan("llama-3.1-8b", "--max-model-len", "131072", nodes=NODES[1:]).blocked
    assert blocked.code == "MODEL_TOO_LARGE"
    assert "or with --max-model-len " in blocked.message


def test_only_the_nodes_with_too_small_cards_are_left_out() -> None:
    found = plan("qwen3-30b-a3b", "--max-model-len", "4096", replicas=9)
    assert {member.node for action in found.actions for member in action.members} == {"big"}
    (blocked,) = found.blocked
    assert {reason.code for reason in blocked.reasons} == {"INSUFFICIENT_GPU", "MODEL_TOO_LARGE"}
    assert [(addition.like, addition.nodes) for addition in blocked.would_fit] == [("big", 1)]


def test_a_model_that_fits_is_placed_as_without_a_description() -> None:
    described_one = plan("llama-3.1-8b", "--max-model-len", "8192", replicas=3)
    without = fleet("llama-3.1-8b", "--max-model-len", "8192", replicas=3)
    plain = plan_for(replace(without, models=tuple(replace(model, description=None) for model in without.models)),
                     short_inventory({"nodes": NODES}))
    assert [action.members for action in described_one.actions] == [action.members for action in plain.actions]


@pytest.mark.parametrize("args", [("--cpu-offload-gb", "700"), ("--quantization", "fp8"), ("--no-such-flag",)])
def test_a_word_that_may_lower_the_memory_makes_a_warning_of_it(args: tuple[str, ...]) -> None:
    found = plan("llama-3.1-405b", *args)
    assert not found.blocked
    (note,) = found.notes
    assert (note.code, note.level) == ("MODEL_MAY_NOT_FIT", "warning")
    assert "755.96Gi of weights" in note.message


def test_the_check_can_be_turned_into_a_warning() -> None:
    found = plan("llama-3.1-405b", check="warn")
    assert len(found.actions) == 1
    assert [note.code for note in found.notes] == ["MODEL_MAY_NOT_FIT"]


def test_a_context_that_does_not_fit_is_a_warning_with_the_length_that_does() -> None:
    found = plan("llama-3.1-8b", nodes=NODES[1:])
    assert len(found.actions) == 1
    (note,) = found.notes
    assert "one request of 131,072 tokens takes 16Gi; it would fit with --max-model-len " in note.message


def test_cards_on_which_the_same_spec_is_ready_have_proven_large_enough() -> None:
    wanted = fleet("llama-3.1-8b", replicas=2)
    for spec_hash, ready, warnings in ((wanted.models[0].spec_hash, "5m", 0), (wanted.models[0].spec_hash, None, 1),
                                       ("other", "5m", 1)):
        running = {"model": "llama-3.1-8b", "id": 0, "node": "small", "hash": spec_hash, "ready": ready}
        found = plan_for(wanted, short_inventory({"nodes": NODES[1:], "replicas": [running]}))
        assert (len(found.actions), len(found.notes)) == (1, warnings)


def test_cards_on_which_the_same_spec_is_ready_are_not_refused() -> None:
    wanted = fleet("qwen3-30b-a3b", "--max-model-len", "4096", replicas=2)
    for spec_hash, created in ((wanted.models[0].spec_hash, 1), ("other", 0)):
        running = {"model": "qwen3-30b-a3b", "id": 0, "node": "small", "hash": spec_hash, "ready": "5m"}
        found = plan_for(wanted, short_inventory({"nodes": NODES[1:], "replicas": [running]}))
        assert (len(found.actions), found.notes) == (created, [])


def test_cards_on_which_the_same_spec_was_ready_are_not_refused_when_its_replica_has_ended() -> None:
    wanted = fleet("qwen3-30b-a3b", "--max-model-len", "4096", replicas=2)
    for spec_hash, created in ((wanted.models[0].spec_hash, 2), ("other", 0)):
        ended = {"model": "qwen3-30b-a3b", "hash": spec_hash, "node": "small", "seconds": 60, "ago": "5m"}
        found = plan_for(wanted, short_inventory({"nodes": NODES[1:], "starts": [ended]}))
        assert (len(found.actions), found.notes) == (created, [])


def test_cards_whose_memory_only_the_file_tells_are_proven_as_others_are() -> None:
    wanted = replace(fleet("qwen3-30b-a3b", "--max-model-len", "4096"), policies=(
        NodePolicy.model_validate({"gpuMemory": "24Gi"}),))
    untold = [{"name": "small", "gpus": 4, "vram": 0}]
    for spec_hash, created in ((wanted.models[0].spec_hash, 1), ("other", 0)):
        ended = {"model": "qwen3-30b-a3b", "hash": spec_hash, "node": "small", "seconds": 60, "ago": "5m"}
        found = plan_for(wanted, short_inventory({"nodes": untold, "starts": [ended]}))
        assert len(found.actions) == created, found.blocked


def test_a_member_without_cards_may_be_where_cards_are_too_small() -> None:
    engine = {"command": ["vllm", "serve", "m"], "args": ["--max-model-len", "4096"]}
    members = [{"role": "Leader", "nodeSelector": {"ray.io/accelerator-type": "L4"}, "engine": engine},
               {"role": "Worker", "resources": {"gpus": 1}, "engine": engine}]
    document = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {"models": [{
        "key": "m", "replicas": 2, "model": {"description": "m.json"},
        "workers": [{"name": "main", "members": members}]}]}}
    description = json.dumps(described("qwen3-30b-a3b").as_json())
    wanted = inspect({"fleet.yaml": json.dumps(document), "m.json": description}).sound()
    running = short_inventory({"nodes": [NODES[0], {**NODES[1], "gpus": 1}], "replicas": [
        {"model": "m", "id": 0, "nodes": ["small", "big"], "hash": wanted.models[0].spec_hash, "ready": "5m"}]})
    leader, worker = running.replicas[0].members
    members_now = [leader.model_copy(update={"gpus": 0}), worker]
    running = running.model_copy(update={"replicas": [running.replicas[0].model_copy(update={"members": members_now})]})
    found = plan_for(wanted, running)
    assert [(member.role, member.node) for action in found.starts for member in action.members] == [
        ("Leader", "small"), ("Worker", "big")]
    assert found.notes == []
    few = running.model_copy(update={"nodes": running.nodes[1:]})
    assert [row.code for row in plan_for(wanted, few).blocked] == ["MODEL_TOO_LARGE"]


def test_cards_of_unknown_memory_are_not_judged() -> None:
    found = plan("llama-3.1-405b", nodes=[{"name": "a", "gpus": 1}])
    assert len(found.actions) == 1
    assert not [note for note in found.notes if note.code == "MODEL_MAY_NOT_FIT"]


def two_groups(*args: str, **resources: Any) -> ResolvedFleet:
    """Return a fleet with one model whose first group has 8 cards on H100, and whose second one is for L4."""
    def group(name: str, card: str, args: list[str], **claims: Any) -> dict[str, Any]:
        return {"name": name, "members": [{
            "resources": claims, "nodeSelector": {"ray.io/accelerator-type": card},
            "engine": {"command": ["vllm", "serve", "m"], "args": args}}]}

    document = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {"models": [{
        "key": "m", "replicas": 1, "model": {"description": "m.json"}, "workers": [
            group("large", "H100", ["--max-model-len", "4096"], gpus=1), group("small", "L4", list(args), **resources)],
    }]}}
    described_one = json.dumps(described("qwen3-30b-a3b").as_json())
    return inspect({"fleet.yaml": json.dumps(document), "m.json": described_one}).sound()


def test_each_group_is_kept_off_the_cards_that_it_does_not_fit_on() -> None:
    nodes = short_inventory({"nodes": NODES})
    found = plan_for(two_groups("-tp", "4", "--max-model-len", "4096", gpus=4), nodes)
    (action,) = found.starts
    assert [(member.group, member.node) for member in action.members] == [("large", "big"), ("small", "small")]
    (blocked,) = plan_for(two_groups("--max-model-len", "4096", gpus=1), nodes).blocked
    assert blocked.code == "MODEL_TOO_LARGE"
    assert blocked.message.startswith("group small needs larger cards: 56.87Gi of weights")


def test_a_warning_names_the_group_and_the_nodes_where_it_runs() -> None:
    found = plan_for(two_groups("-tp", "4", "--max-model-len", "400000", gpus=4), short_inventory({"nodes": NODES}))
    assert len(found.actions) == 1
    (note,) = found.notes
    assert (note.model, note.nodes) == ("m", ["small"])
    assert note.message.startswith("group small on small: 14.")


def test_the_reason_is_about_cards_that_the_selector_allows() -> None:
    (blocked,) = plan_for(two_groups("--max-model-len", "131072", "--gpu-memory-utilization", "0.5", gpus=1),
                          short_inventory({"nodes": NODES})).blocked
    assert "and L4 has 24Gi, of which the engine takes 0.5 (it would fit on 2 x H100" in blocked.message


def test_cards_that_its_flags_do_not_use_hold_nothing() -> None:
    (blocked,) = plan("llama-3.1-405b", gpus=8).blocked
    assert "755.96Gi of weights on the one card that its flags use of 8, and H100 has 80Gi" in blocked.message


def test_larger_cards_are_suggested_if_there_are_any_at_all() -> None:
    (blocked,) = plan("llama-3.1-405b", "-tp", "8", gpus=8).blocked
    assert "94.50Gi of weights on each of its 8 cards" in blocked.message
    (addition,) = blocked.would_fit
    assert (addition.nodes, addition.gpus, addition.like) == (1, 80_000, None)
    assert 94 << 30 < (addition.vram or 0) < 96 << 30


def test_no_node_is_grown_whose_cards_cannot_hold_it() -> None:
    grow = [GrowType.model_validate({"name": name, "max": 4, "node": {
        "gpus": 8, "vram": vram, "cpus": 64, "memory": "512Gi", "labels": {"kind": name}}})
        for name, vram in (("tiny", "24Gi"), ("large", "80Gi"))]
    wanted = fleet("qwen3-30b-a3b", "--max-model-len", "4096")
    wanted = replace(wanted, cluster=wanted.cluster.model_copy(update={"grow": grow}))
    found = plan_for(wanted, short_inventory({"nodes": NODES[1:]}))
    assert {row.name: row.nodes for row in found.growth} == {"tiny": 0, "large": 1}
    (row,) = capacity(Scenario(wanted, short_inventory({"nodes": NODES[1:]}))).rows
    assert (row.now.code, row.now.fits) == ("MODEL_TOO_LARGE", 0)
    assert row.with_new_nodes is not None
    assert row.with_new_nodes.fits == 4 * 8 - 1


def test_a_model_has_no_room_where_it_is_too_large_and_none_on_more_of_these_nodes() -> None:
    wanted = fleet("qwen3-30b-a3b", "--max-model-len", "4096")
    small = Scenario(wanted, short_inventory({"nodes": NODES[1:]}))
    for rows in (capacity(small).rows, capacity(small, models=["qwen3-30b-a3b"]).rows):
        assert [(row.now.fits, row.now.code) for row in rows] == [(0, "MODEL_TOO_LARGE")]
    assert what_if(small, Changes(add=("like:small",))).after.create == 0
    assert what_if(small, Changes(add=("8xH100",))).after.create == 1
    (loss, _) = lose_each(Scenario(wanted, short_inventory({"nodes": NODES})), plan("qwen3-30b-a3b"))
    assert (loss.nodes, [(row.missing, row.code) for row in loss.models]) == (["big"], [(1, "MODEL_TOO_LARGE")])


CARDS = {"H200": "141Gi", "H100": "80Gi", "L4": "24Gi", "A10": None}
Nodes = st.lists(st.builds(
    lambda kind, gpus: {"gpus": gpus, "vram": CARDS[kind], "labels": {"ray.io/accelerator-type": kind}},
    st.sampled_from([*CARDS]), st.sampled_from([1, 4, 8])), min_size=1, max_size=4)


@settings(max_examples=cases(60), deadline=None)
@given(nodes=Nodes, name=st.sampled_from(["llama-3.1-70b", "qwen3-30b-a3b", "llama-3.1-8b"]),
       gpus=st.sampled_from([1, 2, 4]), replicas=st.integers(1, 6),
       args=st.sampled_from([(), ("--max-model-len", "32768"), ("--gpu-memory-utilization", "0.5")]))
def test_nothing_is_placed_on_smaller_cards_and_what_is_suggested_helps(
    nodes: list[dict[str, Any]], name: str, gpus: int, replicas: int, args: tuple[str, ...]
) -> None:
    wanted = fleet(name, *args, *(("-tp", str(gpus)) if gpus > 1 else ()), gpus=gpus, replicas=replicas)
    nodes = [{**node, "name": f"n{number}"} for number, node in enumerate(nodes)]
    found = plan_for(wanted, short_inventory({"nodes": nodes}))
    least = replica_shape(wanted.models[0]).selectors[0].least_card
    sizes = {node["name"]: parse_bytes(node["vram"] or "0") for node in nodes}
    assert all(not sizes[member.node] or sizes[member.node] >= least
               for action in found.starts for member in action.members)
    for one in [one for row in found.blocked for one in row.would_fit]:
        like = next((node for node in nodes if node["name"] == one.like), None)
        new = like or {"gpus": one.gpus // 10_000, "vram": str(one.vram), "labels": {}}
        more = [*nodes, *({**new, "name": f"new{number}"} for number in range(one.nodes))]
        assert len(plan_for(wanted, short_inventory({"nodes": more})).starts) > len(found.starts)
