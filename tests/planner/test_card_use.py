"""What members take of their cards: measured where nothing else can be on them, and the claim of `vram: auto`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from short_forms import plan_for, short_inventory

from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.resolved import ResolvedFleet, shape_as_set
from fleetctl.planner.placement.card_use import CardUse
from fleetctl.planner.variants import shapes_of
from tests.fleetfile.memory_tree import inspect
from tests.sizing.test_public_models import described

GIB = 1 << 30
L4 = {"name": "small", "gpus": 2, "vram": "24Gi", "labels": {"kind": "L4"}}
H100 = {"name": "large", "gpus": 2, "vram": "80Gi", "labels": {"kind": "H100"}}
VLLM = ["vllm", "serve", "m", "--max-model-len", "8192"]
LLAMA = ["llama-server", "-m", "m.gguf", "-c", "8192", "-ngl", "all"]


def fleet(command: list[str], claim: dict[str, Any], selector: dict[str, str] | None = None, replicas: int = 1
          ) -> ResolvedFleet:
    """Return a fleet of one described model."""
    member = {"resources": {"vram": "auto", **claim}, "nodeSelector": selector or {}, "engine": {"command": command}}
    document = {"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {"models": [{
        "key": "m", "replicas": replicas, "model": {"description": "m.json"},
        "workers": [{"name": "main", "members": [member]}]}]}}
    described_one = json.dumps(described("llama-3.1-8b").as_json())
    return inspect({"fleet.yaml": json.dumps(document), "m.json": described_one}).sound()


def claimed(wanted: ResolvedFleet, *nodes: dict[str, Any], replicas: list[dict[str, Any]] | None = None
            ) -> list[tuple[str, float]]:
    """Return node and claimed GiB of each new replica."""
    seen = short_inventory({"nodes": list(nodes), "replicas": replicas or []})
    return [(member.node, round(member.vram / GIB, 2)) for action in plan_for(wanted, seen).starts
            for member in action.members]


def test_whole_cards_are_claimed_by_the_estimate_on_the_smallest_that_hold_the_model() -> None:
    assert claimed(fleet(VLLM, {"gpus": 1}), L4) == [("small", 22.58)]
    assert claimed(fleet(VLLM, {"gpus": 1}), H100) == [("large", 74.10)]
    both = sorted(claimed(fleet(VLLM, {"gpus": 1}, replicas=4), L4, H100))
    assert both == [("large", 22.58)] * 2 + [("small", 22.58)] * 2, "any card will do, and nothing shares it"


def test_a_share_is_claimed_by_the_largest_estimate_since_it_counts_on_all_cards() -> None:
    half = [*VLLM, "--gpu-memory-utilization", "0.45"]
    assert claimed(fleet(half, {}), H100) == [("large", 36.5)]
    assert claimed(fleet(half, {}), H100, L4) == [("large", 36.5)]
    on_l4 = [*VLLM, "--gpu-memory-utilization", "0.9"]
    assert claimed(fleet(on_l4, {}, {"kind": "L4"}), H100, L4) == [("small", 22.1)]


def test_two_replicas_share_a_card_by_their_estimates() -> None:
    found = plan_for(fleet([*VLLM, "--gpu-memory-utilization", "0.45"], {}, replicas=9), short_inventory({
        "nodes": [H100]}))
    assert (len(found.actions), found.blocked[0].code) == (4, "INSUFFICIENT_VRAM")


def test_an_estimate_beyond_every_card_is_a_warning_and_blocks_nothing() -> None:
    long = [*VLLM[:3], "--max-model-len", "60000"]
    found = plan_for(fleet(long, {"gpus": 1}), short_inventory({"nodes": [L4]}))
    assert len(found.actions) == 1
    assert [note.code for note in found.notes] == ["MODEL_MAY_NOT_FIT"]


def test_cards_of_unknown_memory_are_not_enough_for_an_estimate() -> None:
    found = plan_for(fleet(VLLM, {"gpus": 1}), short_inventory({"nodes": [{"name": "a", "gpus": 1}]}))
    assert [row.code for row in found.blocked] == ["CARD_MEMORY_UNKNOWN"]


def test_the_spec_has_the_word_and_running_replicas_keep_their_claim() -> None:
    wanted = fleet(VLLM, {"gpus": 1})
    (model,) = wanted.models
    as_set = shape_as_set(model.workers, model.placement)
    assert as_set["workers"][0]["members"][0]["resources"] == {"gpus": 10_000, "vram": "auto"}
    running = {"model": "m", "id": 0, "node": "small", "vram": "5Gi", "hash": model.spec_hash}
    found = plan_for(wanted, short_inventory({"nodes": [L4], "replicas": [running]}))
    assert (found.actions, found.drift) == ([], [])


def use_of(member: dict[str, Any], *, beside: dict[str, Any] | None = None, **node: Any) -> int | None:
    """Return what is measured of a replica on a node with one card, and perhaps another replica beside it."""
    one = {"model": "m", "id": 0, "node": "a", "gpus": 1, "cards": [0], "ready": "5m", **member}
    others = [{"model": "n", "id": 0, "node": "a", "gpus": 1, "cards": [0], **beside}] if beside else []
    seen: Inventory = short_inventory({"nodes": [{
        "name": "a", "gpus": 1, "vram": "24Gi", "measured": {0: "9Gi"}, "share": {0: 1.0}, **node}],
        "replicas": [one, *others]})
    (replica, *_) = seen.replicas
    return CardUse(seen).measured(replica, replica.members[0])


def test_the_use_of_a_card_is_that_of_the_only_member_on_it() -> None:
    assert use_of({}) == 9 * GIB
    assert use_of({}, processes={0: [{"pid": 7}]}) == 9 * GIB
    assert use_of({"gpus": 0.5}, share={0: 0.5}) == 9 * GIB


@pytest.mark.parametrize("case", [
    {"beside": {"gpus": 0.5}}, {"processes": {0: [{"pid": 7}, {"pid": 8}]}}, {"unified": True}, {"measured": {}},
    {"share": {}}, {"member": {"gpus": 0.5}}, {"member": {"ready": "10s"}}, {"member": {"ready": None}},
    {"member": {"cards": []}}, {"member": {"notReadySince": "2026-01-01T00:00:00Z"}}], ids=str)
def test_nothing_is_measured_where_another_may_be_on_the_card(case: dict[str, Any]) -> None:
    assert use_of(case.pop("member", {}), **case) is None


def test_what_equal_replicas_take_is_claimed_for_engines_that_fill_no_share() -> None:
    for command, gib in ((LLAMA, 9.25), (VLLM, 22.58)):
        wanted = fleet(command, {"gpus": 1}, replicas=2)
        running = {"model": "m", "id": 0, "node": "small", "cards": [0], "ready": "5m",
                   "hash": wanted.models[0].spec_hash}
        node = {**L4, "measured": {0: "9.1Gi"}, "share": {0: 1.0, 1: 0.0}}
        assert claimed(wanted, node, replicas=[running]) == [("small", gib)]
        other = replace(wanted, models=(replace(wanted.models[0], spec_hash="other"),))
        assert claimed(other, node, replicas=[running]) != [("small", 9.25)], "of another spec"


def test_the_estimate_of_a_running_member_is_for_its_own_card() -> None:
    wanted = fleet(VLLM, {"gpus": 1})
    seen = short_inventory({"nodes": [L4, H100], "replicas": [
        {"model": "m", "id": number, "node": name} for number, name in enumerate(("small", "large"))]})
    found = [CardUse(seen).estimated(wanted.models[0], replica.members[0]) for replica in seen.replicas]
    assert [round((known or 0) / GIB, 2) for known in found] == [22.58, 74.10]


class CountedReads(list[Any]):
    """A list that counts how often it is read from its start."""

    reads = 0

    def __iter__(self) -> Any:
        self.reads += 1
        return super().__iter__()


def test_nodes_and_replicas_are_read_as_often_for_many_models_as_for_one() -> None:
    one = fleet(VLLM, {"gpus": 1})
    tiny = {"name": "tiny", "gpus": 1, "vram": "12Gi"}
    short = {"nodes": [L4, H100, tiny], "replicas": [{
        "model": f"m{number}", "id": 0, "node": "small", "gpus": 1, "cards": [0], "ready": "5m",
        "hash": one.models[0].spec_hash} for number in range(9)]}
    reads = []
    for count in (1, 9):
        nodes, replicas = CountedReads(short_inventory(short).nodes), CountedReads(short_inventory(short).replicas)
        many = replace(one, models=tuple(replace(one.models[0], key=f"m{number}") for number in range(count)))
        shapes_of(many, short_inventory({}).model_copy(update={"nodes": nodes, "replicas": replicas}))
        reads.append((nodes.reads, replicas.reads))
    assert reads[0] == reads[1]
    assert reads[0][1] > 0
