"""From a layout to replicas: gangs on distinct nodes, first replicas of models first, order kept."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from short_forms import short_inventory, short_model

from fleetctl.planner.live import sort_out
from fleetctl.planner.placement.claims import replica_shape
from fleetctl.planner.placement.demand import Demand, Placed
from fleetctl.planner.placement.ledger.ledger import open_ledger
from fleetctl.planner.placement.ledger.replica import Placer
from fleetctl.planner.placement.problem import Problem, state_problem
from fleetctl.planner.placement.realize import PackingLayout, PlacedMember, realize


def problem_of(nodes: list[dict[str, Any]], models: list[dict[str, Any]]) -> Problem:
    inventory = short_inventory({"nodes": nodes})
    ledger = open_ledger(inventory, (), sort_out(inventory, "lab", ()))
    demands = [Demand(replica_shape(short_model(model)), model["replicas"], 0, model.get("priority", 0), place)
               for place, model in enumerate(models)]
    return state_problem(demands, ledger)


def nodes_of(placed: Placed, problem: Problem) -> list[str]:
    return [problem.ledger.nodes[assigned.node].name for assigned in placed.assignments]


@given(st.data())
def test_members_are_split_into_gangs_on_distinct_nodes(data: st.DataObject) -> None:
    """Members with at most one per gang on each node can always be split into whole gangs."""
    gangs, workers = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    ranks = [node for gang in range(gangs)
             for node in data.draw(st.permutations(range(6)), label=f"gang {gang}")[: workers + 1]]
    problem = problem_of([{"name": f"n{number}", "gpus": 8} for number in range(6)],
                         [{"key": "m", "replicas": gangs, "gang": {"gpus": 1, "workers": workers}}])
    assignments = {node: (PlacedMember(0, 0, 0),) * count for node, count in Counter(ranks).items()}
    placed = realize(problem, PackingLayout((gangs,), assignments), Placer(problem.ledger))
    assert len(placed) == gangs
    assert all(len(set(nodes_of(one, problem))) == workers + 1 for one in placed)
    assert Counter(assigned.node for one in placed for assigned in one.assignments) == Counter(ranks)


def test_gangs_bound_to_a_label_stay_inside_one_value() -> None:
    nodes = [{"name": name, "gpus": 2, "labels": {"rack": name[0]}} for name in ("a1", "a2", "b1", "b2")]
    problem = problem_of(nodes, [{"key": "m", "replicas": 4, "sameLabel": "rack", "gang": {"gpus": 1, "workers": 1}}])
    assignments = {node: (PlacedMember(0, 0, 0),) * 2 for node in range(4)}
    placed = realize(problem, PackingLayout((4,), assignments), Placer(problem.ledger))
    assert sorted(nodes_of(one, problem) for one in placed) == [["a1", "a2"]] * 2 + [["b1", "b2"]] * 2


def test_gangs_in_two_label_values_never_form_a_replica_bound_to_one_value() -> None:
    """In this layout rack a lacks members for a whole replica, and members in rack a cannot complete one in rack b."""
    nodes = [{"name": name, "gpus": 2, "labels": {"rack": name}} for name in ("a", "b")]
    groups = [{"name": name, "members": [{"role": "Standalone", "resources": {"gpus": gpus}}]}
              for name, gpus in (("prefill", 1), ("decode", 0.5))]
    problem = problem_of(nodes, [{"key": "m", "replicas": 2, "workers": groups,
                                  "sameLabel": {"label": "rack", "scope": "replica"}}])
    decode, prefill = PlacedMember(0, 0, 0), PlacedMember(0, 1, 1)
    placed = realize(problem, PackingLayout((2,), {0: (prefill,), 1: (prefill, decode)}), Placer(problem.ledger))
    assert [nodes_of(one, problem) for one in placed] == [["b", "b"]]


def test_every_model_of_a_class_gets_a_first_replica_before_others_get_more() -> None:
    problem = problem_of([{"name": "a", "gpus": 3}],
                         [{"key": key, "replicas": 3, "gpus": 1} for key in ("x", "y")])
    placed = realize(problem, PackingLayout((3,), {0: (PlacedMember(0, 0, 0),) * 3}), Placer(problem.ledger))
    assert [one.demand.shape.key for one in placed] == ["x", "y", "x"]


def test_shares_are_created_in_the_order_of_the_layout() -> None:
    """0.6 + 0.4 and 0.5 + 0.5 fill two cards only if each card's shares come one after the other."""
    problem = problem_of([{"name": "a", "gpus": 2}], [
        {"key": key, "replicas": count, "gpus": share} for key, count, share in
        (("four", 1, 0.4), ("five", 2, 0.5), ("six", 1, 0.6))])
    order = [PlacedMember(0, 0, 0), PlacedMember(2, 0, 2), PlacedMember(1, 0, 1), PlacedMember(1, 0, 1)]
    placed = realize(problem, PackingLayout((1, 2, 1), {0: tuple(order)}), Placer(problem.ledger))
    assert [one.demand.shape.key for one in placed] == ["four", "six", "five", "five"]


def test_members_that_the_ledger_refuses_are_left_out() -> None:
    problem = problem_of([{"name": "a", "gpus": 1}], [{"key": "m", "replicas": 2, "gpus": 1}])
    placed = realize(problem, PackingLayout((2,), {0: (PlacedMember(0, 0, 0),) * 2}), Placer(problem.ledger))
    assert [one.demand.shape.key for one in placed] == ["m"]
