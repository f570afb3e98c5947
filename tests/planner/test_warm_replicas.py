"""A WARM replica counts in a plan only with its id; it still serves its weights."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from planning_inputs import KEYS, PlanningInputs, planning_inputs
from short_forms import plan_for, short_fleet, short_inventory, short_replica
from test_properties import some

from fleetctl.documents.inventory import Inventory

Warm = st.lists(st.fixed_dictionaries({
    "model": st.sampled_from([*KEYS, "unlisted"]), "id": st.integers(0, 9),
    "node": st.sampled_from(["n0", "n1", "gone"]),
    "gpus": st.just(0), "level": st.just("WARM"), "hash": st.sampled_from([None, "old", "new-m0"]),
    "fleet": st.sampled_from(["lab", "lab", None]),
    "state": st.sampled_from(["ALIVE", "ALIVE", "PENDING_CREATION", "RESTARTING"]),
}), min_size=1, max_size=4)


def without_ids(value: Any) -> Any:
    """A plan's document without the ids of new replicas, including those named in remedies."""
    if isinstance(value, dict):
        named = ("replica_id", "id", "replica") if "replica_id" in value else ()
        return {key: without_ids(one) for key, one in value.items() if key not in ("plan_id", "highestId", *named)}
    return [without_ids(one) for one in value] if isinstance(value, list) else value


@some
@given(planning_inputs(), Warm)
def test_warm_replicas_change_only_the_ids_in_a_plan(inputs: PlanningInputs, warm: list[dict[str, Any]]) -> None:
    fleet, inventory = inputs
    rows = [short_replica(one) for one in warm]
    with_them = inventory.model_copy(update={"replicas": [*rows, *inventory.replicas]})
    plan, before = plan_for(fleet, with_them), plan_for(fleet, inventory)
    assert without_ids(plan.model_dump(mode="json")) == without_ids(before.model_dump(mode="json"))
    for action in plan.actions:
        ours = [one.replica_id for one in rows if one.model == action.model and one.fleet == "lab"]
        assert action.replica_id > max(ours, default=-1)
    for one, other in zip(before.actions, plan.actions, strict=True):
        assert other.replica_id >= one.replica_id


def test_a_warm_replica_on_a_dead_node_is_not_lost() -> None:
    inventory: Inventory = short_inventory({
        "nodes": [{"name": "a", "gpus": 1}, {"name": "b", "state": "DEAD"}],
        "replicas": [{"model": "m", "id": 4, "node": "b", "level": "WARM"}]})
    plan = plan_for(short_fleet({"models": [{"key": "m", "replicas": 1, "gpus": 1}]}), inventory)
    assert ([action.id for action in plan.actions], plan.lost, plan.unmanaged) == (["m/5"], [], [])
