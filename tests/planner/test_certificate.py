"""Certificates: proven or not, the argument, and the gain of moving live replicas."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from oracle.hard_cases import FAMILIES
from short_forms import plan_for, short_fleet, short_inventory

from fleetctl.documents.plan import Certificate
from fleetctl.planner.plan import certify

Short = dict[str, Any]


def certificate_of(models: list[Short], nodes: list[Short], **more: Any) -> Certificate:
    fleet = short_fleet({"models": models, "nodes": more.get("policies", [])})
    return plan_for(fleet, short_inventory({"nodes": nodes, "replicas": more.get("replicas", [])})).certificate


def written(placed: int, wanted: int, most: int, repacked: int | None = None) -> Certificate:
    return certify(wanted, placed, most, "counting", repacked)


def test_a_plan_at_its_bound_is_optimal() -> None:
    assert written(2, 5, most=2).status == "optimal"
    assert written(2, 5, most=3).status == "feasible"


def test_a_plan_that_places_everything_needs_no_argument() -> None:
    assert written(5, 5, most=9).method == "all missing replicas are placed"
    assert written(5, 5, most=9).upper_bound == 5
    assert written(0, 0, most=0).method == "nothing is missing"


def test_a_proof_always_names_its_method() -> None:
    """Also if the packer placed everything: models claimed by another fleet never reach the packer."""
    other = {"model": "a", "id": 0, "node": "n", "gpus": 1, "cards": [0], "fleet": "other"}
    found = certificate_of([{"key": "a", "replicas": 1, "gpus": 1}, {"key": "b", "replicas": 1, "gpus": 1}],
                           [{"name": "n", "gpus": 4}], replicas=[other])
    assert (found.placed, found.wanted) == (1, 2)
    assert found.method == "a model that runs under another fleet gets no replicas"


def test_the_gain_of_moving_replicas_is_reported_only_if_there_is_one() -> None:
    assert written(2, 5, most=3, repacked=4).repacked_bound == 4
    assert written(2, 5, most=3, repacked=3).repacked_bound is None


def test_fewer_but_larger_replicas_are_proven_best() -> None:
    """Two of m fill the node; the eight small ones would be more replicas, but the large ones are served first."""
    certificate = certificate_of([{"key": "big", "replicas": 2, "gpus": 4, "priority": 1},
                                  {"key": "small", "replicas": 8, "gpus": 1}], [{"name": "a", "gpus": 8}])
    assert (certificate.placed, certificate.upper_bound, certificate.status) == (2, 2, "optimal")


def test_the_method_is_a_count_if_a_count_suffices() -> None:
    certificate = certificate_of([{"key": "m", "replicas": 3, "gpus": 1}], [{"name": "a", "gpus": 2}])
    assert certificate.method == "slot count: slots per model"


def test_the_method_is_the_relaxation_if_counting_gives_a_higher_bound() -> None:
    models = [{"key": "a", "replicas": 2, "gpus": 0.6}, {"key": "b", "replicas": 1, "gpus": 0.7}]
    certificate = certificate_of(models, [{"name": "a", "gpus": 2}])
    assert (certificate.placed, certificate.status) == (2, "optimal")
    assert certificate.method.startswith("relaxation over ")


FRAGMENTED = [{"name": name, "gpus": 2} for name in "ab"]
ONE_EACH = [{"model": "small", "id": number, "node": node, "gpus": 1, "cards": [0]} for number, node in enumerate("ab")]


def test_fragmentation_by_our_own_replicas_shows_in_the_bound() -> None:
    models = [{"key": "small", "replicas": 2, "gpus": 1}, {"key": "big", "replicas": 1, "gpus": 2}]
    nodes = [{**node, "vram": "80Gi"} for node in FRAGMENTED]
    certificate = certificate_of(models, nodes, replicas=ONE_EACH)
    assert (certificate.placed, certificate.upper_bound, certificate.repacked_bound) == (0, 0, 1)


def test_replicas_of_others_never_count_as_movable() -> None:
    models = [{"key": "small", "replicas": 0, "gpus": 1}, {"key": "big", "replicas": 1, "gpus": 2}]
    nodes = [{**node, "vram": "80Gi"} for node in FRAGMENTED]
    strangers = [{**replica, "fleet": "other"} for replica in ONE_EACH]
    assert certificate_of(models, nodes, replicas=strangers).repacked_bound is None


def test_live_replicas_keep_their_room_when_moved() -> None:
    """Live replicas hold three cards wherever they are moved; the fourth has no room for two."""
    models = [{"key": "small", "replicas": 3, "gpus": 1}, {"key": "big", "replicas": 1, "gpus": 2}]
    nodes = [{**node, "vram": "80Gi"} for node in FRAGMENTED]
    third = {"model": "small", "id": 2, "node": "a", "gpus": 1, "cards": [1]}
    assert certificate_of(models, nodes, replicas=[*ONE_EACH, third]).repacked_bound is None


def test_replicas_on_a_cordoned_node_are_not_movable() -> None:
    models = [{"key": "small", "replicas": 2, "gpus": 1}, {"key": "big", "replicas": 1, "gpus": 2}]
    nodes = [{**node, "vram": "80Gi", "labels": {"node": node["name"]}} for node in FRAGMENTED]
    certificate = certificate_of(models, nodes, replicas=ONE_EACH,
                                 policies=[{"selector": {"node": "a"}, "cordon": True}])
    assert certificate.repacked_bound is None


@pytest.mark.long
def test_a_hundred_nodes_short_of_cpu_are_proven_best() -> None:
    """The best GPU share is found quickly; the search for as many replicas as it allows then fails."""
    fleet, inventory = FAMILIES["cpu-bound"](Random("cpu-bound/2/100"), 100)
    for model, replicas in zip(fleet["models"], (141, 48, 65, 304, 221, 29), strict=True):
        model["replicas"] = replicas
    found = plan_for(short_fleet(fleet), short_inventory(inventory)).certificate
    assert (found.placed, found.status) == (469, "optimal")


@pytest.mark.parametrize(("times", "most"), [(1, 6503), (4, 26017)])
def test_on_a_large_fleet_large_replicas_yield_to_more_small_ones_that_fill_as_many_cards(
    times: int, most: int
) -> None:
    """With 1,500 nodes, too many for the solver, or 6,000, too many for walks; the bound has counts by model."""
    nodes = [{"name": f"{gpus}-{number}", "gpus": gpus}
             for gpus, count in ((2, 512), (8, 503), (4, 485)) for number in range(times * count)]
    wanted = {"urgent": (1, 1801), "large": (4, 266), "middle": (2, 791), "small": (1, 2998), "other": (1, 1222)}
    found = certificate_of(
        [{"key": key, "gpus": gpus, "replicas": times * count, "priority": 5 * (key == "urgent")}
         for key, (gpus, count) in wanted.items()], nodes)
    assert (found.placed, found.status) == (most, "optimal")
