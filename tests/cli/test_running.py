"""What a replica was started with against what the file says now: an apply's record, masked, beside the fleet file."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.documents.mask import masked
from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.resolve import shape_as_set
from fleetctl.fleetfile.resolved import ResolvedModel
from fleetctl.workflow.live_plan import HIDDEN_ALONE, HIDDEN_BESIDE, NOT_RECORDED, SAME, changed_since
from tests.review.fleet_texts import SECRET, engine, fleet, group, member, model


def of(*groups: dict[str, Any], **more: Any) -> ResolvedModel:
    text = fleet(model(workers=list(groups) or [group("main", member())], **more))
    return load_fleet(["-"], stdin=text.encode).models[0]


def words(old: ResolvedModel, new: ResolvedModel) -> list[str]:
    return changed_since(masked(shape_as_set(old.workers, old.placement)), old.spec_hash, new)


def with_engine(**more: Any) -> ResolvedModel:
    return of(group("main", member(engine=engine(**more))))


def test_a_changed_argument_is_shown_as_in_diff() -> None:
    assert words(with_engine(args=["--a", "1", "--b"]), with_engine(args=["--a", "2", "--b"])) == [
        "workers.main.members[0].engine.args: --a 1 … -> --a 2 …"]


def test_amounts_placement_and_what_is_only_spelled_out() -> None:
    small = member(resources={"gpus": 0.5, "vram": "8Gi", "cpus": "500m"})
    old = of(group("main", small), placement={"spread": "zone"})
    new = of(group("main", member(resources={"gpus": 1, "vram": "16Gi", "cpus": "500m"}), copies=1))
    assert words(old, new) == [
        "placement.spread: zone -> not set",
        "workers.main.members[0].resources.gpus: 0.5 -> 1", "workers.main.members[0].resources.vram: 8Gi -> 16Gi",
    ]


def test_what_is_not_in_the_spec_is_no_difference() -> None:
    assert words(of(startupTimeout="5m"), of(startupTimeout="9m", replicas=7, priority=3)) == [SAME]


def test_equal_env_values_are_proven_by_the_hash_although_they_are_masked() -> None:
    old, new = with_engine(env={"TOKEN": SECRET}, args=["a"]), with_engine(env={"TOKEN": SECRET}, args=["b"])
    assert words(old, new) == ["workers.main.members[0].engine.args: a -> b"]


def test_a_different_env_value_is_reported_without_the_value() -> None:
    assert words(with_engine(env={"TOKEN": "old-" + SECRET}), with_engine(env={"TOKEN": SECRET})) == [HIDDEN_ALONE]


def test_added_and_removed_env_names_are_reported_without_values() -> None:
    *differences, last = words(with_engine(env={"GONE": SECRET}), with_engine(env={"NEW": SECRET}))
    told = " ".join(differences)
    assert "engine.env" in told
    assert "GONE" in told
    assert "NEW" in told
    assert SECRET not in told
    assert last == HIDDEN_BESIDE


def test_a_value_that_now_comes_from_the_node_is_a_difference() -> None:
    found = words(with_engine(env={"T": SECRET}), with_engine(env={"T": {"fromNode": "T"}}))
    assert found[0].startswith("workers.main.members[0].engine.env.T: ")
    assert found[1:] == [HIDDEN_BESIDE]
    assert SECRET not in str(found)


def test_a_group_no_longer_in_the_file_is_reported() -> None:
    found = words(of(group("old", member())), of(group("new", member())))
    assert {text.partition(":")[0] for text in found if text != HIDDEN_BESIDE} == {"workers.old", "workers.new"}


@pytest.mark.parametrize("shape", [
    {}, {"workers": 3}, {"workers": [{"name": "main"}]}, {"workers": [{"name": "main", "members": [{}]}]},
    {"workers": [], "placement": {"odd": 1}}, {"workers": [{"members": []}]},
    {"workers": [{"name": "main", "members": 1}]},
    {"workers": [{"name": "main", "members": [{"engine": {"command": ["x"], "env": []}}]}]},
])
def test_a_damaged_record_gives_no_differences(shape: dict[str, Any]) -> None:
    assert changed_since(shape, "0" * 16, of())[-1] in (NOT_RECORDED, HIDDEN_ALONE, HIDDEN_BESIDE)
