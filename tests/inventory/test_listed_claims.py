"""The used resources of a node: by Ray's lists, and what Ray's sum has beyond them, each counted once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.documents.inventory import ReplicaMember
from fleetctl.inventory.actors import LiveActor
from fleetctl.inventory.assemble import PlacementGroup, listed_by_node, read_placement_group
from fleetctl.inventory.claims import Claim, RaySum, read_claim, read_claim_in_group, read_sum, read_sums
from fleetctl.inventory.marks import Marks
from fleetctl.inventory.replicas import find_replicas

GROUP = "6cc62b5954bc6ec6371e0225445406000000"
GIB = 1 << 30


def actor(name: str = "", *, gpus: int = 0, node: str | None = None, group: str | None = None, state: str = "ALIVE",
          namespace: str = "fleet") -> LiveActor:
    return LiveActor(actor_id=f"id-{name}-{node}-{gpus}-{namespace}", name=name, namespace=namespace, state=state,
                     class_name="", job_id="01", node_id=node, placement_group_id=group, claim=Claim(gpus),
                     repr_name="", restarts=0, error=None)


def listed(actors: list[LiveActor], planned: dict[str, list[tuple[str, int]]] | None = None,
           dead: frozenset[str] = frozenset(), groups: tuple[PlacementGroup, ...] = ()) -> dict[str, int]:
    """Used GPUs by node; `planned` = (node, share) of the members of each starting actor, by its name."""
    plans = {one.actor_id: Marks("lab", spec_hash="h", members=tuple(
        ReplicaMember(rank=rank, node_id=node, gpus=share) for rank, (node, share) in enumerate(members)))
        for one in actors if (members := (planned or {}).get(one.name))}
    found = listed_by_node(actors, find_replicas(actors, "fleet", plans), dead, groups)
    return {node: claim.gpus for node, claim in found.items()}


def group(name: str, *bundles: tuple[str, int]) -> PlacementGroup:
    return PlacementGroup(name, tuple((node, Claim(gpus)) for node, gpus in bundles))


def test_a_running_actor_uses_resources_of_its_node():
    assert listed([actor(gpus=5000, node="a"), actor(gpus=2500, node="a"), actor(gpus=10000, node="b")]) == {
        "a": 7500, "b": 10000}


def test_an_actor_inside_a_placement_group_counts_through_the_group_alone():
    assert listed([actor(gpus=10000, node="a", group=GROUP)]) == {}
    assert listed([actor(gpus=10000, node="a", group=GROUP)], groups=(group("pg", ("a", 20000)),)) == {"a": 20000}


@pytest.mark.parametrize("namespace", ["fleet", "other"])
def test_a_starting_replica_uses_resources_of_its_planned_nodes(namespace: str):
    starting = actor("ModelActor:m:0", gpus=5000, state="PENDING_CREATION", namespace=namespace)
    assert listed([starting], {"ModelActor:m:0": [("a", 5000)]}) == {"a": 5000}


def test_a_starting_foreign_actor_without_a_node_counts_nowhere():
    assert listed([actor("other", gpus=5000, state="PENDING_CREATION")]) == {}


GANG = {"ModelActor:m:0": [("a", 10000), ("b", 20000)]}


@pytest.mark.parametrize("state", ["PENDING_CREATION", "RESTARTING"])
def test_a_gang_that_is_not_running_keeps_its_resources(state: str):
    assert listed([actor("ModelActor:m:0", node="a", state=state)], GANG) == {"a": 10000, "b": 20000}


def test_a_gang_that_lost_a_node_holds_nothing_on_the_others():
    gang = actor("ModelActor:m:0", node="a", state="RESTARTING")
    assert listed([gang], GANG, dead=frozenset({"b"})) == {}


def test_the_placement_group_of_our_gang_does_not_count_beside_its_members():
    gang = actor("ModelActor:m:0", node="a", state="PENDING_CREATION")
    ours, theirs = group("ModelActor:m:0", ("a", 10000), ("b", 20000)), group("x", ("a", 5000))
    assert listed([gang], GANG, groups=(ours, theirs)) == {"a": 15000, "b": 20000}


def test_bundles_without_a_node_and_removed_groups_count_nothing():
    row = {"placement_group_id": GROUP, "name": "x", "state": "PENDING",
           "bundles": [{"node_id": "", "unit_resources": {"GPU": 1.0}}, {"node_id": None}, "?"]}
    assert read_placement_group(row).held == ()
    assert read_placement_group({**row, "state": "REMOVED"}) is None


def test_amounts_become_exact_integers():
    assert read_claim({"GPU": 0.1 + 0.2, "CPU": 1, "memory": 1048576.0, "node:x": 0.001}) == Claim(3000, 10000, 1 << 20)
    assert read_claim({"GPU": True, "CPU": "4", "memory": -1}) == Claim()
    assert read_claim(None) == Claim()
    assert sum((read_claim({"GPU": 0.1}) for _ in range(10)), Claim()).as_amounts().gpu == 1.0


def test_resources_from_a_group_are_read_by_rays_names():
    assert read_claim_in_group({f"GPU_group_0_{GROUP}": 1.0, f"GPU_group_{GROUP}": 1.0, f"bundle_group_{GROUP}": 0.001,
                                f"CPU_group_{GROUP}": 2.0}) == Claim(10000, 20000)


@pytest.mark.parametrize(("text", "used"), [
    ("0.0/2.0 CPU\n3.0/4.0 GPU\n0B/21.00GiB memory\n0B/80.00MiB object_store_memory", Claim(30000)),
    ("1.5/2.0 CPU\n0.30000000000000004/4.0 GPU\n1.50GiB/21.00GiB memory", Claim(3000, 15000, 3 * GIB // 2)),
    ("0.0/4.0 GPU (0.0 used of 2.0 reserved in placement groups)", Claim(20000)),
    ("1.5/4.0 GPU (0.5 used of 2.0 reserved in placement groups)", Claim(30000)),
    ("2.0/4.0 GPU (2.0 used of 2.0 reserved in placement groups)", Claim(20000)),
    ("0B/21.26GiB memory (0B used of 1.00GiB reserved in placement groups)", Claim(0, 0, GIB)),
    ("512.00KiB/21.26GiB memory\n1.0/1.0 accelerator_type:H100\n0.001/1.0 spot", Claim(0, 0, 512 << 10)),
    ("-0.0/4.0 GPU", Claim()),
])
def test_rays_sum_is_used_plus_reserved(text: str, used: Claim):
    """As written by `parse_usage` of Ray 2.49 to 2.60, which counts only the used part of a reservation."""
    assert read_sum(text).used == used


@pytest.mark.parametrize("text", ["", "hello", None, 3, "x/y GPU", "1e/2 GPU", "1e999/2 GPU", "3.0/4.0 TPU",
                                  {"GPU": 1}])
def test_an_unparsable_sum_is_unknown(text: object):
    assert read_sum(text) is None
    assert read_sums({"n": text}) == {}


@pytest.mark.parametrize("table", [None, [], "text", 1])
def test_a_dashboard_without_sums_has_none(table: object):
    assert read_sums(table) == {}


@given(st.integers(0, 1 << 42))
def test_memory_rounded_by_ray_is_no_unknown_holder(memory: int):
    """Ray rounds to two decimals of a unit; a difference within that rounding is no unknown holder."""
    ray_sum = read_sum(f"{rounded(memory)}/8.00TiB memory")
    assert ray_sum.at_least(Claim(memory=memory)).memory == memory


def rounded(size: int) -> str:
    """Format bytes like Ray's `format_memory`."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.2f}{unit}"
    return f"{size}B"


def test_the_larger_of_both_counts_resource_by_resource():
    ray_sum = RaySum(Claim(30000, 0, 8 * GIB), memory_error=GIB // 100)
    assert ray_sum.at_least(Claim(20000, 5000, 2 * GIB)) == Claim(30000, 5000, 8 * GIB)
    assert ray_sum.at_least(Claim(40000, 0, 9 * GIB)) == Claim(40000, 0, 9 * GIB)
