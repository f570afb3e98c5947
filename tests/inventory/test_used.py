"""What counts as used, where, and never twice."""

from __future__ import annotations

import json

from fleetctl.inventory.actors import LiveActor
from fleetctl.inventory.claims import Claim, read_claim, read_claim_in_group
from fleetctl.inventory.placement_groups import PlacementGroup, read_placement_group
from fleetctl.inventory.replicas import find_replicas
from fleetctl.inventory.used import used_by_node

GROUP = "6cc62b5954bc6ec6371e0225445406000000"


def actor(name: str = "", *, gpus: int = 0, node: str | None = None, group: str | None = None, state: str = "ALIVE",
          planned: list[tuple[str, int]] | None = None, namespace: str = "fleet") -> LiveActor:
    members = [{"group": "main", "copy": 0, "role": "Worker", "rank": rank, "nodeId": where, "gpus": share, "vram": 0,
                "cpus": 0, "memory": 0} for rank, (where, share) in enumerate(planned or [])]
    marks = {"FLEETCTL_FLEET": "lab", "FLEETCTL_MEMBERS": json.dumps(members)} if planned else {}
    return LiveActor(actor_id=f"id-{name}-{node}-{gpus}-{namespace}", name=name, namespace=namespace, state=state,
                     node_id=node, placement_group_id=group, claim=Claim(gpus), environment=marks, repr_name="",
                     restarts=0, last_words=None)


def used(actors: list[LiveActor], *groups: PlacementGroup) -> dict[str, int]:
    found = used_by_node(actors, groups, find_replicas(actors, "fleet"))
    return {node: claim.gpus for node, claim in found.items()}


def group(name: str, state: str, *bundles: tuple[str, int]) -> PlacementGroup:
    return PlacementGroup(f"{GROUP}-{state}", name, state, tuple((node, Claim(gpus)) for node, gpus in bundles))


def test_a_running_actor_counts_on_its_node():
    assert used([actor(gpus=5000, node="a"), actor(gpus=2500, node="a"), actor(gpus=10000, node="b")]) == {
        "a": 7500, "b": 10000}


def test_an_actor_inside_a_placement_group_counts_through_its_bundle():
    assert used([actor(gpus=10000, node="a", group=GROUP)], group("pg", "CREATED", ("a", 20000))) == {"a": 20000}


def test_a_starting_replica_counts_where_it_was_planned():
    starting = actor("ModelActor:m:0", gpus=5000, state="PENDING_CREATION", planned=[("a", 5000)])
    assert used([starting]) == {"a": 5000}


def test_a_starting_stranger_without_a_node_counts_nowhere():
    assert used([actor("other", gpus=5000, state="PENDING_CREATION")]) == {}


GANG = [("a", 10000), ("b", 20000)]


def test_a_gang_counts_by_its_plan_until_its_group_is_granted():
    coordinator = actor("ModelActor:m:0", node="a", state="PENDING_CREATION", planned=GANG)
    assert used([coordinator]) == {"a": 10000, "b": 20000}
    assert used([coordinator], group("ModelActor:m:0", "PENDING")) == {"a": 10000, "b": 20000}
    assert used([coordinator], group("ModelActor:m:0", "RESCHEDULING", ("a", 10000))) == {"a": 10000, "b": 20000}
    assert used([coordinator], group("ModelActor:m:0", "CREATED", *GANG)) == {"a": 10000, "b": 20000}


def test_a_group_of_the_same_name_on_other_nodes_is_of_another_namespace():
    """Ray's list of placement groups does not tell namespaces apart; a starting gang must not pass for granted."""
    coordinator = actor("ModelActor:m:0", node="a", state="PENDING_CREATION", planned=GANG)
    theirs = group("ModelActor:m:0", "CREATED", ("c", 10000), ("d", 10000))
    assert used([coordinator], theirs) == {"a": 10000, "b": 20000, "c": 10000, "d": 10000}
    granting = group("ModelActor:m:0", "PENDING", ("c", 10000))
    assert used([coordinator], granting) == {"a": 10000, "b": 20000, "c": 10000}


def test_gangs_of_the_same_name_in_two_namespaces_count_both():
    ours = actor("ModelActor:m:0", node="a", state="PENDING_CREATION", planned=GANG)
    theirs = actor("ModelActor:m:0", node="a", planned=GANG, namespace="other")
    twice = {"a": 20000, "b": 40000}
    assert used([ours, theirs]) == twice
    assert used([ours, theirs], group("ModelActor:m:0", "CREATED", *GANG)) == twice
    assert used([theirs, ours], group("ModelActor:m:0", "PENDING", ("a", 10000)),
                group("ModelActor:m:0", "CREATED", *GANG)) == twice


def test_a_starting_replica_of_another_namespace_counts_where_it_was_planned():
    single = actor("ModelActor:m:0", gpus=5000, state="PENDING_CREATION", planned=[("a", 5000)], namespace="other")
    gang = actor("ModelActor:g:0", state="PENDING_CREATION", planned=GANG, namespace="other")
    assert used([single, gang]) == {"a": 15000, "b": 20000}


def test_a_gang_that_restarts_keeps_its_room():
    coordinator = actor("ModelActor:m:0", node="a", state="RESTARTING", planned=GANG)
    assert used([coordinator]) == {"a": 10000, "b": 20000}


def test_bundles_that_are_granted_count_even_in_a_group_that_waits():
    assert used([], group("other", "RESCHEDULING", ("a", 10000))) == {"a": 10000}


def test_bundles_without_a_node_and_removed_groups_count_nothing():
    row = {"placement_group_id": GROUP, "name": "x", "state": "PENDING",
           "bundles": [{"node_id": "", "unit_resources": {"GPU": 1.0}}, {"node_id": None}, "?"]}
    assert read_placement_group(row).held == ()
    assert read_placement_group({**row, "state": "REMOVED"}) is None


def test_amounts_become_integers_without_dust():
    assert read_claim({"GPU": 0.1 + 0.2, "CPU": 1, "memory": 1048576.0, "node:x": 0.001}) == Claim(3000, 10000, 1 << 20)
    assert read_claim({"GPU": True, "CPU": "4", "memory": -1}) == Claim()
    assert read_claim(None) == Claim()
    assert sum((read_claim({"GPU": 0.1}) for _ in range(10)), Claim()).as_amounts().gpu == 1.0


def test_resources_out_of_a_group_are_read_from_rays_names_for_them():
    assert read_claim_in_group({f"GPU_group_0_{GROUP}": 1.0, f"GPU_group_{GROUP}": 1.0, f"bundle_group_{GROUP}": 0.001,
                                f"CPU_group_{GROUP}": 2.0}) == Claim(10000, 20000)
