"""Declared hardware with invalid numbers and names: each is reported, and the inventory has a limited size."""

from __future__ import annotations

import pytest
from import_cases import account, imported

from fleetctl.fleetfile.sources import SourceBytes
from fleetctl.importers.hardware import MAX_NODES
from fleetctl.importers.read import Imported


def declared(*pools: str, cards: str = "8") -> Imported:
    text = f"""apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {{name: big}}
spec: {{devices: [{{name: gpu, claim: DRA, driver: gpu.nvidia.com, count: {cards}}}]}}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {{name: east}}
spec: {{nodePools: [{", ".join(pools)}]}}
"""
    return imported([SourceBytes("hardware.yaml", text.encode())])


def nodes(result: Imported) -> list[int]:
    """The number of cards of each node."""
    assert result.inventory is not None
    return [len(node.gpus) for node in result.inventory.nodes]


@pytest.mark.parametrize("cards", ["-3", "0", "65", "1" + "0" * 100])
def test_an_invalid_number_of_cards_is_one_and_reported(cards: str) -> None:
    result = declared("{name: a, className: big}", cards=cards)
    assert nodes(result) == [1]
    assert "4:66: lost: spec.devices[0].count: not a valid number of cards from 1 to 64: 1 is used" in account(result)


def test_an_invalid_class_name_is_reported() -> None:
    result = declared("{name: a, className: [big]}", "{name: b, className: {big: big}}", "{name: c, className: big}")
    assert nodes(result) == [8]
    assert account(result).count("not read: expected text") == 2


def test_a_negative_number_of_nodes_is_reported() -> None:
    result = declared("{name: a, className: big, nodeCount: -2}")
    assert nodes(result) == []
    assert "spec.nodePools[0].nodeCount: not a valid number of nodes: 0 is used" in account(result)


def test_the_number_of_nodes_is_limited_over_all_pools_and_the_rest_is_reported() -> None:
    result = declared("{name: a, className: big, nodeCount: 3}", "{name: b, className: big, nodeCount: 2000000000}",
                      "{name: c, className: big}", cards="1")
    assert len(nodes(result)) == MAX_NODES
    losses = account(result)
    assert "nodePools[1].nodeCount: an inventory has at most 10000 nodes: 9997 of these 2000000000 are used" in losses
    assert "nodePools[2].nodeCount: an inventory has at most 10000 nodes: 0 of these 1 are used" in losses
