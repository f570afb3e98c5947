from __future__ import annotations

import pytest
from render_plans import create, member

from fleetctl.render.place_text import amount_text, group_alike, ids_text, place_text


@pytest.mark.parametrize(("members", "text"), [
    ([member("a", gpus=10_000)], "1 GPU"),
    ([member("a", gpus=80_000)], "8 GPUs"),
    ([member("a", gpus=2_500)], "0.25 GPU"),
    ([member("a", gpus=2_500), member("a", gpus=2_500)], "2 x 0.25 GPU"),
    ([member("a", gpus=20_000), member("a", gpus=20_000)], "4 GPUs"),
    ([member("a", gpus=5_000), member("a", gpus=2_500)], "0.75 GPU"),
    ([member("a", cpus=5_000)], "0.5 CPU"),
    ([member("a")], "a place"),
])
def test_amounts_claimed_on_one_node(members: list, text: str) -> None:
    assert amount_text(members) == text


def test_nodes_with_the_same_amount_share_a_phrase() -> None:
    members = [member("a", gpus=80_000), member("b", gpus=80_000), member("c", gpus=40_000)]
    assert place_text(members) == "8 GPUs on each of a, b, 4 GPUs on c"


def test_replicas_of_one_model_with_one_place_are_grouped() -> None:
    actions = [create("m", 0, member("a", gpus=5_000)), create("m", 1, member("b", gpus=5_000)),
               create("m", 2, member("a", gpus=5_000)), create("n", 0, member("b", gpus=5_000))]
    assert group_alike(actions) == [
        ("m", [0, 2], "0.5 GPU on a"), ("m", [1], "0.5 GPU on b"), ("n", [0], "0.5 GPU on b"),
    ]


@pytest.mark.parametrize(("ids", "text"), [([3], "3"), ([0, 1, 2], "0-2"), ([0, 1, 5, 7, 8], "0-1,5,7-8")])
def test_replica_ids_are_shown_as_ranges(ids: list[int], text: str) -> None:
    assert ids_text(ids) == text
