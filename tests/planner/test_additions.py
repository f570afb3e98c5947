"""The nodes that a blocked model is told to add, by `what-if`: with that many it is placed, with one less it is not."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planning_inputs import PlanningInputs, planning_inputs
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory
from test_reason_remedies import crowded

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Addition, Blocked
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.questions.changes import Changes
from fleetctl.planner.questions.scenario import Scenario
from fleetctl.planner.questions.what_if import what_if
from fleetctl.render.report.of_blocked import remedy_lines

GANG = {"key": "big", "replicas": 1, "priority": 100, "gang": {"gpus": 8, "workers": 1}}
ONE_NODE = {"nodes": [{"name": "n1", "gpus": 8}]}


def typed(one: Addition, count: int) -> tuple[str, ...]:
    """The addition as a user would type it for --add-node."""
    if not count:
        return ()
    labels = {**one.labels, **({one.one_value_of: "typed"} if one.one_value_of else {})}
    if one.like is not None and not labels:
        return (f"like:{one.like} x{count}",)
    parts = [f"gpus={one.gpus / 10_000:g}", f"cpus={one.cpus / 10_000:g}", f"memory={one.memory}",
             *([f"vram={one.vram}"] if one.vram else []), *(f"label={key}={value}" for key, value in labels.items())]
    return (f"{','.join(parts)} x{count}",)


def gained(fleet: ResolvedFleet, inventory: Inventory, model: str, added: list[tuple[Addition, int]]) -> int:
    """How many more replicas of a model are placed, by what-if."""
    add = tuple(text for one, count in added for text in typed(one, count))
    if not add:
        return 0
    [row] = [one for one in what_if(Scenario(fleet, inventory), Changes(add=add)).models if one.key == model]
    return row.after.create - row.before.create


def told(row: Blocked) -> str:
    return " | ".join(remedy_lines(row))


def test_new_replicas_of_lower_priority_do_not_make_an_addition_larger() -> None:
    fleet = short_fleet({"models": [GANG, {"key": "small", "replicas": 1, "gpus": 4}]})
    [row] = plan_for(fleet, short_inventory(ONE_NODE)).blocked
    assert told(row) == "would fit with 1 more node (8 GPUs, like n1)"


def test_models_that_get_the_new_nodes_first_are_counted() -> None:
    models = [{"key": key, "replicas": 1, "gpus": 8, "priority": priority}
              for key, priority in (("running", 9), ("first", 5), ("second", 5), ("last", 0))]
    rows = plan_for(short_fleet({"models": models}), short_inventory(ONE_NODE)).blocked
    assert [told(row).partition(" (")[0] for row in rows] == [
        "would fit with 1 more node", "would fit with 2 more nodes", "would fit with 3 more nodes"]


def test_what_a_quota_stops_is_told_no_nodes() -> None:
    models = [{"key": "a", "replicas": 1, "gang": {"gpus": 8, "workers": 1}, "labels": {"team": "x"}},
              {"key": "b", "replicas": 1, "gpus": 1, "labels": {"team": "x"}}]
    fleet = short_fleet({"models": models, "policy": {"quotas": [{"selector": {"team": "x"}, "replicas": 1}]}})
    [row] = plan_for(fleet, short_inventory(ONE_NODE)).blocked
    assert row.model in ("a", "b")
    assert gained(fleet, short_inventory(ONE_NODE), row.model, [(one, one.nodes) for one in row.would_fit]) == bool(
        row.would_fit)


def test_a_domain_that_no_node_has_is_told_without_an_invented_value() -> None:
    fleet = short_fleet({"models": [{**GANG, "sameLabel": "modelplane.ai/pool"}]})
    [row] = plan_for(fleet, short_inventory({"nodes": [{"name": "n1", "gpus": 8}, {"name": "n2", "gpus": 8}]})).blocked
    assert "would fit with 2 more nodes (8 GPUs, like n1) with one value of modelplane.ai/pool" in told(row)
    assert "new" not in told(row).replace("no new", "")
    assert all(not one.labels for one in row.would_fit)


def test_a_number_that_is_not_tried_is_called_an_estimate() -> None:
    models = [{"key": "m", "replicas": 9_000, "gpus": 8}]
    [row] = plan_for(short_fleet({"models": models}), short_inventory(ONE_NODE)).blocked
    assert told(row).startswith("would fit with about 1 more node (8 GPUs, like n1); all 8999 with about 8999")


@settings(max_examples=cases(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(crowded(), planning_inputs(exact=True)))
def test_the_number_told_places_the_replica_by_what_if_and_one_less_does_not(inputs: PlanningInputs) -> None:
    fleet, inventory = inputs
    for row in plan_for(fleet, inventory).blocked:
        parts: list[Any] = row.would_fit
        assert not parts or "even if no replica ran there" not in row.no_remedy
        if not parts or any(one.estimated for one in parts):
            continue
        assert gained(fleet, inventory, row.model, [(one, one.nodes) for one in parts]) >= 1
        if len(parts) == 1:
            assert gained(fleet, inventory, row.model, [(parts[0], parts[0].nodes - 1)]) < 1
            if parts[0].nodes_for_all and not parts[0].estimated_for_all:
                everything = parts[0].nodes_for_all
                assert gained(fleet, inventory, row.model, [(parts[0], everything)]) >= row.replicas
                assert gained(fleet, inventory, row.model, [(parts[0], everything - 1)]) < row.replicas
