"""The certificate's bound is an upper bound: on small worlds, against every possible order and choice of nodes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planner_worlds import plan_for, short_fleet, short_inventory
from simulated import SimNode, selects, simulate

from fleetctl.documents.inventory import Inventory
from fleetctl.spec.resolved import ResolvedFleet

Nodes = st.lists(st.fixed_dictionaries({
    "gpus": st.integers(0, 3), "cpus": st.integers(1, 4), "vram": st.sampled_from([None, "24Gi"]),
    "labels": st.sampled_from([{}, {"pool": "x"}]),
}), min_size=1, max_size=2)
Models = st.lists(st.fixed_dictionaries({
    "replicas": st.integers(0, 2), "gpus": st.sampled_from([0.3, 0.6, 1, 2, 3]), "cpus": st.integers(0, 2),
    "vram": st.sampled_from([0, 0, "10Gi"]), "selector": st.sampled_from([{}, {"pool": "x"}]),
}), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(Nodes, Models)
def test_no_choice_of_order_and_nodes_beats_the_bound(nodes: list[dict], models: list[dict]) -> None:
    fleet = short_fleet({"models": [{"key": f"m{i}", **model} for i, model in enumerate(models)]})
    inventory = short_inventory({"nodes": [{"name": f"n{i}", **node} for i, node in enumerate(nodes)]})
    plan = plan_for(fleet, inventory)
    assert len(plan.actions) <= most_possible(fleet, inventory) <= plan.certificate.upper_bound


def most_possible(fleet: ResolvedFleet, inventory: Inventory) -> int:
    nodes = tuple(simulate(inventory, (), fleet.name, None).values())
    return _most(fleet, nodes, tuple(model.replicas for model in fleet.models))


def _most(fleet: ResolvedFleet, nodes: tuple[SimNode, ...], missing: tuple[int, ...]) -> int:
    best = 0
    for place, model in enumerate(fleet.models):
        member = model.workers[0].members[0]
        want = member.resources
        for number, node in enumerate(nodes if missing[place] else ()):
            if best == sum(missing) or not selects(member.node_selector, node.node.labels):
                continue
            copy = replace(node, cards=[replace(card) for card in node.cards])
            if copy.take(want.gpus, want.vram, want.cpus, want.memory) is not None:
                left = tuple(count - (index == place) for index, count in enumerate(missing))
                best = max(best, 1 + _most(fleet, (*nodes[:number], copy, *nodes[number + 1:]), left))
    return best


def bound_of(nodes: list[dict], models: list[dict]) -> tuple[int, str]:
    certificate = plan_for(short_fleet({"models": models}), short_inventory({"nodes": nodes})).certificate
    return certificate.upper_bound, certificate.method


def test_models_together_cannot_use_more_groups_of_cards_than_nodes_hold() -> None:
    nodes = [{"name": name, "gpus": 6} for name in "ab"]
    models = [{"key": key, "replicas": 2, "gpus": 4} for key in "pq"]
    assert bound_of(nodes, models) == (2, "slot count: free groups of 4 whole cards on one node")


def test_models_together_cannot_use_more_cpus_than_there_are() -> None:
    models = [{"key": key, "replicas": 4, "gpus": 0.1, "cpus": 2} for key in "pq"]
    assert bound_of([{"name": "a", "gpus": 8, "cpus": 9}], models) == (4, "slot count: free CPUs")


def test_a_gang_is_bounded_by_its_domains() -> None:
    nodes = [{"name": f"{zone}{number}", "gpus": 8, "labels": {"zone": zone}} for zone in "xyz" for number in range(3)]
    models = [{"key": "m", "replicas": 9, "sameLabel": "zone", "gang": {"gpus": 8, "workers": 1}}]
    assert bound_of(nodes, models) == (3, "slot count: slots per model")
