"""The values of --shape and --add-node."""

from __future__ import annotations

import pytest
from short_forms import short_inventory

from fleetctl.errors import FleetctlError, UsageError
from fleetctl.planner.placement.claims import Claim
from fleetctl.planner.questions.new_node import new_nodes
from fleetctl.planner.questions.shape_syntax import typed_shape

GIB = 1 << 30


@pytest.mark.parametrize(("text", "members", "claim"), [
    ("8", 1, Claim(gpus=80_000)),
    ("0.5", 1, Claim(gpus=5_000)),
    (".25", 1, Claim(gpus=2_500)),
    ("2x8", 2, Claim(gpus=80_000)),
    ("gpus=8 x2", 2, Claim(gpus=80_000)),
    ("gpus=8 * 2", 2, Claim(gpus=80_000)),
    ("2x8,vram=120Gi", 2, Claim(gpus=80_000, vram=120 * GIB)),
    ("gpus=1,vram=16Gi,cpus=2,memory=8Gi", 1, Claim(10_000, 16 * GIB, 20_000, 8 * GIB)),
    ("cpus=500m", 1, Claim(cpus=5_000)),
    ("vram=10Gi", 1, Claim(vram=10 * GIB)),
])
def test_a_typed_shape_has_the_typed_values(text: str, members: int, claim: Claim) -> None:
    shape = typed_shape(text)
    assert shape.size == members
    assert {seat.claim for seat in shape.seats} == {claim}
    assert [seat.role for seat in shape.seats] == (["Standalone"] if members == 1 else ["Leader", "Worker"])


def test_a_selector_keeps_the_commas_in_its_parentheses() -> None:
    shape = typed_shape("gpus=1,selector=ray.io/accelerator-type=in(L4, A10G),selector=pool=!x,sameLabel=rack")
    assert shape.seats[0].selector.labels == (("pool", "!x"), ("ray.io/accelerator-type", "in(L4, A10G)"))
    assert shape.same_label == "rack"


def test_the_key_of_a_typed_shape_cannot_be_a_models() -> None:
    assert " " in typed_shape("8").key


@pytest.mark.parametrize(("text", "message"), [
    ("", "not a shape"), ("lots", "not a shape"), ("gpu=8", "gpus=8"),
    ("gpus=8,colour=red", "colour"), ("gpus=1.5", "1.5"),
    ("gpus=1,vram=16GB", "16G"), ("gpus=nan", "nan"), ("gpus=1e999", "1e999"), ("vram=0", "must claim something"),
    ("gpus=1,gpus=2", "twice"), ("2000x1", "1024"), ("gpus=1,selector=pool", "label"), ("0x8", "whole number"),
    ("gpus=1,selector=pool=[x", "selector"), ("gpus=-1", "-1"), ("gpus=1,", "not a shape"),
    ("gpus=1,ranksPerNode=0", "0"), ("2xH100", "write gpus=2,selector=ray.io/accelerator-type=H100"),
    ("gpus=1,ranksPerNode=0000001999999", "whole number"),
    ("A100-80G", "write gpus=1,selector=ray.io/accelerator-type=A100-80G"),
])
def test_an_invalid_shape_is_a_usage_error_that_says_why(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        typed_shape(text)
    assert message in f"{caught.value.message} {caught.value.hint}"


INVENTORY = short_inventory({"nodes": [
    {"name": "big-1", "gpus": 8, "vram": "141Gi", "cpus": 192, "measured": {0: 9 * GIB}, "used": {"GPU": 8},
     "labels": {"ray.io/accelerator-type": "H200", "pool": "big", "fleet.io/node": "big-1"}},
    {"name": "new-1", "gpus": 1}]})


def test_a_node_of_a_known_type_is_an_empty_copy_of_such_a_node() -> None:
    (node,), words = new_nodes("8xh200", INVENTORY)
    assert words == "8xH200 like big-1"
    assert node.labels == {"ray.io/accelerator-type": "H200", "pool": "big", "fleet.io/node": "new-2"}
    assert (node.resources.total.cpu, node.resources.used.gpu if node.resources.used else None) == (192, 0)
    assert {(card.memory_total, card.memory_used, card.share) for card in node.gpus} == {(141 * GIB, 0, None)}


def test_new_nodes_get_unused_names() -> None:
    nodes, _ = new_nodes("8xH200x3", INVENTORY)
    assert [node.name for node in nodes] == ["new-2", "new-3", "new-4"]


@pytest.mark.parametrize("text", ["like:big-1 x2", "like:big-1x2", "8xH200 x2", "8xH200x2", "8xH200 *2"])
def test_a_number_of_nodes_can_be_written_in_several_ways(text: str) -> None:
    nodes, words = new_nodes(text, INVENTORY)
    assert len({node.id for node in nodes}) == 2
    assert words == "2 x 8xH200 like big-1"


def test_a_type_the_cluster_does_not_have_gets_the_known_card_memory() -> None:
    (node,), words = new_nodes("4xL4", INVENTORY)
    assert [card.memory_total for card in node.gpus] == [23_034 << 20] * 4
    assert node.labels == {"ray.io/accelerator-type": "L4"}
    assert "unlimited CPUs" in words


def test_a_node_can_be_given_in_full() -> None:
    (node,), _ = new_nodes("gpus=2,type=X9,vram=64Gi,cpus=16,memory=1Ti,label=pool=a,label=rack=r1", INVENTORY)
    assert node.labels == {"ray.io/accelerator-type": "X9", "pool": "a", "rack": "r1"}
    total = node.resources.total
    assert (total.gpu, total.cpu, total.memory, len(node.gpus)) == (2, 16, 1 << 40, 2)


@pytest.mark.parametrize(("text", "message"), [
    ("like:big", "big-1"), ("8xX9", "vram="), ("gpus=0.5", "whole"), ("gpus=8,lable=a=b", "label"), ("gpus=65", "64"),
    ("8xH200 x99999", "10000"), ("gpus=1,label=pool", "label"), ("", "8xH200"), ("8xH200x99999", "not a shape"),
])
def test_an_invalid_node_is_an_error_that_says_why(text: str, message: str) -> None:
    with pytest.raises(FleetctlError) as caught:
        new_nodes(text, INVENTORY)
    assert isinstance(caught.value, UsageError) != text.startswith("like:")
    assert message in f"{caught.value.message} {caught.value.hint}"
