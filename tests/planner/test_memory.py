"""A described model is kept off nodes whose cards certainly cannot hold it, and what may not fit is a warning."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from short_forms import plan_for, short_inventory

from fleetctl.documents.fleet import GrowType
from fleetctl.documents.plan import Plan
from fleetctl.fleetfile.resolved import ResolvedFleet
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
    assert "8 x H100 with a checkpoint in fp8" in blocked.message
    assert not blocked.would_fit
    assert "no node of this fleet has cards that hold it" in blocked.no_remedy


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
    assert "one request of 131,072 tokens takes 16Gi; a length of" in note.message


def test_cards_of_unknown_memory_are_not_judged() -> None:
    found = plan("llama-3.1-405b", nodes=[{"name": "a", "gpus": 1}])
    assert len(found.actions) == 1
    assert not [note for note in found.notes if note.code == "MODEL_MAY_NOT_FIT"]


def test_no_node_is_grown_whose_cards_cannot_hold_it() -> None:
    grow = [GrowType.model_validate({"name": name, "max": 4, "node": {
        "gpus": 8, "vram": vram, "cpus": 64, "memory": "512Gi", "labels": {"kind": name}}})
        for name, vram in (("tiny", "24Gi"), ("large", "80Gi"))]
    wanted = fleet("qwen3-30b-a3b", "--max-model-len", "4096")
    wanted = replace(wanted, cluster=wanted.cluster.model_copy(update={"grow": grow}))
    found = plan_for(wanted, short_inventory({"nodes": NODES[1:]}))
    assert {row.name: row.nodes for row in found.growth} == {"tiny": 0, "large": 1}
