"""The certificate against every possible order and choice of nodes on small clusters, and the counts it names."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_cases import cases
from short_forms import plan_for, short_fleet, short_inventory
from simulated import SimNode, selects, simulate
from stated import problem_of

from fleetctl.documents.inventory import Inventory
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.placement.exact.bound import count_bound
from fleetctl.planner.placement.tally import Tally

Nodes = st.lists(st.fixed_dictionaries({
    "gpus": st.integers(0, 3), "cpus": st.integers(1, 4), "vram": st.sampled_from([None, "24Gi"]),
    "labels": st.sampled_from([{}, {"pool": "x"}]),
}), min_size=1, max_size=2)
Models = st.lists(st.fixed_dictionaries({
    "replicas": st.integers(0, 2), "gpus": st.sampled_from([0.3, 0.6, 1, 2, 3]), "cpus": st.integers(0, 2),
    "vram": st.sampled_from([0, 0, "10Gi"]), "selector": st.sampled_from([{}, {"pool": "x"}]),
}), min_size=1, max_size=3)


@settings(max_examples=cases(50), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(Nodes, Models)
def test_no_choice_of_order_and_nodes_beats_the_certificate(nodes: list[dict], models: list[dict]) -> None:
    fleet = short_fleet({"models": [{"key": f"m{i}", **model} for i, model in enumerate(models)]})
    inventory = short_inventory({"nodes": [{"name": f"n{i}", **node} for i, node in enumerate(nodes)]})
    plan = plan_for(fleet, inventory)
    best = best_counts(fleet, inventory)
    assert sum(best) <= plan.certificate.upper_bound
    if plan.certificate.status == "optimal":
        created = tuple(row.create for row in plan.models)
        assert rated(fleet, created) == rated(fleet, best)


def rated(fleet: ResolvedFleet, counts: tuple[int, ...]) -> tuple[int, int, int]:
    """Rate new replicas by model as the planner does at one priority: served, GPU share, replicas."""
    units = sum(model.workers[0].members[0].resources.gpus * count
                for model, count in zip(fleet.models, counts, strict=True))
    return sum(count > 0 for count in counts), units, sum(counts)


def best_counts(fleet: ResolvedFleet, inventory: Inventory) -> tuple[int, ...]:
    nodes = tuple(simulate(inventory, (), fleet.name, None).values())
    found: set[tuple[int, ...]] = set()
    _try_all(fleet, nodes, (0,) * len(fleet.models), found, set())
    return max(found, key=lambda counts: (rated(fleet, counts), counts))


def _try_all(
    fleet: ResolvedFleet, nodes: tuple[SimNode, ...], counts: tuple[int, ...], found: set, visited: set[str]
) -> None:
    found.add(counts)
    for place, model in enumerate(fleet.models):
        member = model.workers[0].members[0]
        want = member.resources
        for number, node in enumerate(nodes if counts[place] < model.replicas else ()):
            copy = replace(node, cards=[replace(card) for card in node.cards])
            if not selects(member.node_selector, node.node.labels):
                continue
            if copy.take(want.gpus, want.vram, want.cpus, want.memory) is not None:
                after = (*nodes[:number], copy, *nodes[number + 1:])
                more = tuple(count + (index == place) for index, count in enumerate(counts))
                if str((more, after)) not in visited:
                    visited.add(str((more, after)))
                    _try_all(fleet, after, more, found, visited)


def bound_of(models: list[dict], nodes: list[dict]) -> tuple[int, str]:
    bound = count_bound(Tally(problem_of(models, nodes)))
    return bound.replicas, bound.method


def test_models_together_cannot_use_more_groups_of_cards_than_nodes_hold() -> None:
    models = [{"replicas": 2, "gpus": 4}, {"replicas": 2, "gpus": 5}]
    assert bound_of(models, [{"gpus": 7}, {"gpus": 7}]) == (2, "free groups of 4 whole cards on one node")


def test_models_together_cannot_use_more_cpus_than_there_are() -> None:
    models = [{"replicas": 4, "gpus": gpus, "cpus": 2} for gpus in (0.1, 0.2)]
    assert bound_of(models, [{"gpus": 8, "cpus": 9}]) == (4, "free CPUs")


def test_equal_models_are_one_class_with_the_slots_of_one() -> None:
    assert bound_of([{"replicas": 3, "gpus": 4}] * 2, [{"gpus": 6}, {"gpus": 6}]) == (2, "slots per model")


def test_a_gang_is_bounded_by_its_domains() -> None:
    nodes = [{"gpus": 8, "labels": {"zone": zone}} for zone in "xyz" for _ in range(3)]
    models = [{"replicas": 9, "sameLabel": "zone", "gang": {"gpus": 8, "workers": 1}}]
    assert bound_of(models, nodes) == (3, "slots per model")


def test_a_replica_in_one_place_is_bounded_by_its_domains() -> None:
    nodes = [{"gpus": 8, "labels": {"zone": zone}} for zone in "xyyz"]
    pair = {"replicas": 9, "gpus": 8, "copies": 2}
    assert bound_of([pair], nodes)[0] == 2
    assert bound_of([{**pair, "sameLabel": {"label": "zone", "scope": "replica"}}], nodes) == (1, "slots per model")


def test_members_of_one_gang_need_nodes_of_their_own() -> None:
    gang = {"gpus": 1, "workers": 3}
    assert bound_of([{"replicas": 1, "gang": gang}], [{"gpus": 8}] * 3)[0] == 0
    assert bound_of([{"replicas": 1, "gang": gang, "ranksPerNode": 2}], [{"gpus": 8}] * 3)[0] == 1


def test_slots_in_use_count() -> None:
    live = [{"model": "m0", "id": 0, "node": "n00", "gpus": 1}]
    problem = problem_of([{"replicas": 9, "gpus": 1}], [{"gpus": 8}] * 2, replicas=live,
                         policies=[{"maxReplicasPerModel": 2}])
    assert count_bound(Tally(problem)).replicas == 3


def test_dirty_cards_and_cards_without_the_memory_do_not_count() -> None:
    nodes = [{"gpus": 4, "vram": "24Gi", "measured": {0: 9 << 30}}]
    assert bound_of([{"replicas": 9, "gpus": 1, "vram": "20Gi"}], nodes)[0] == 3
    assert bound_of([{"replicas": 9, "gpus": 1, "vram": "40Gi"}], nodes)[0] == 0
