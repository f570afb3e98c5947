"""The spec of a running replica compared with the file: an apply's masked record against the fleet file."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.documents.mask import masked
from fleetctl.fleetfile.load import load_fleet
from fleetctl.fleetfile.resolved import ResolvedModel, shape_as_set
from fleetctl.workflow.spec_changes import HIDDEN_ALONE, HIDDEN_BESIDE, NOT_RECORDED, OR_SECRETS, SAME, changed_since
from tests.review.fleet_texts import SECRET, engine, fleet, group, member, model


def resolved(*groups: dict[str, Any], **more: Any) -> ResolvedModel:
    text = fleet(model(workers=list(groups) or [group("main", member())], **more))
    return load_fleet(["-"], stdin=text.encode).models[0]


def differences(old: ResolvedModel, new: ResolvedModel) -> list[str]:
    return changed_since(masked(shape_as_set(old.workers, old.placement)), old.spec_hash, new)


def with_engine(**more: Any) -> ResolvedModel:
    return resolved(group("main", member(engine=engine(**more))))


def test_a_changed_argument_is_shown_as_in_diff() -> None:
    assert differences(with_engine(args=["--a", "1", "--b"]), with_engine(args=["--a", "2", "--b"])) == [
        "workers.main.members[0].engine.args: --a 1 … -> --a 2 …"]


def test_only_changed_amounts_and_placement_are_shown_and_no_explicit_defaults() -> None:
    small = member(resources={"gpus": 0.5, "vram": "8Gi", "cpus": "500m"})
    old = resolved(group("main", small), placement={"spread": "zone"})
    new = resolved(group("main", member(resources={"gpus": 1, "vram": "16Gi", "cpus": "500m"}), copies=1))
    assert differences(old, new) == [
        "placement.spread: zone -> not set",
        "workers.main.members[0].resources.gpus: 0.5 -> 1", "workers.main.members[0].resources.vram: 8Gi -> 16Gi",
    ]


def test_fields_outside_the_spec_are_not_a_difference() -> None:
    assert differences(resolved(startupTimeout="5m"), resolved(startupTimeout="9m", replicas=7, priority=3)) == [SAME]


def test_masked_env_values_are_proven_equal_by_the_hash() -> None:
    old, new = with_engine(env={"TOKEN": SECRET}, args=["a"]), with_engine(env={"TOKEN": SECRET}, args=["b"])
    assert differences(old, new) == ["workers.main.members[0].engine.args: a -> b"]


def test_a_different_env_value_is_reported_without_the_value() -> None:
    old, new = with_engine(env={"TOKEN": "old-" + SECRET}), with_engine(env={"TOKEN": SECRET})
    assert differences(old, new) == [HIDDEN_ALONE]


def test_added_and_removed_env_names_are_reported_without_values() -> None:
    *names, last = differences(with_engine(env={"GONE": SECRET}), with_engine(env={"NEW": SECRET}))
    text = " ".join(names)
    assert "engine.env" in text
    assert "GONE" in text
    assert "NEW" in text
    assert SECRET not in text
    assert last == HIDDEN_BESIDE


def test_a_value_that_now_comes_from_the_node_is_a_difference() -> None:
    found = differences(with_engine(env={"T": SECRET}), with_engine(env={"T": {"fromNode": "T"}}))
    assert found[0].startswith("workers.main.members[0].engine.env.T: ")
    assert found[1:] == [HIDDEN_BESIDE]
    assert SECRET not in str(found)


def test_a_group_no_longer_in_the_file_is_reported() -> None:
    found = differences(resolved(group("old", member())), resolved(group("new", member())))
    assert {text.partition(":")[0] for text in found if text != HIDDEN_BESIDE} == {"workers.old", "workers.new"}


@pytest.mark.parametrize("shape", [
    {}, {"workers": 3}, {"workers": [{"name": "main"}]}, {"workers": [{"name": "main", "members": [{}]}]},
    {"workers": [], "placement": {"odd": 1}}, {"workers": [{"members": []}]},
    {"workers": [{"name": "main", "members": 1}]},
    {"workers": [{"name": "main", "members": [{"engine": {"command": ["x"], "env": []}}]}]},
])
def test_a_damaged_record_gives_no_differences(shape: dict[str, Any]) -> None:
    assert changed_since(shape, "0" * 16, resolved())[-1] in (NOT_RECORDED, HIDDEN_ALONE, HIDDEN_BESIDE)


def test_a_secret_in_the_arguments_is_compared_by_the_hash_and_never_shown() -> None:
    def serving(secret: str, port: str = "1") -> ResolvedModel:
        return with_engine(args=["--api-key", secret, "--port", port], env={})

    assert differences(serving(SECRET), serving(SECRET, "2")) == [
        "workers.main.members[0].engine.args: … --port 1 -> … --port 2"]
    [found] = differences(serving("old-" + SECRET), serving(SECRET))
    assert found == HIDDEN_ALONE.replace("engine.env", OR_SECRETS)
    moved = differences(serving(SECRET), serving("$(API_KEY)"))
    assert moved[0] == "workers.main.members[0].engine.args: --api-key *** … -> --api-key $(API_KEY) …"
    assert SECRET not in str(moved)
