"""What an actor says of itself is a claim: its address, node and namespace count only where Ray's tables agree."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.documents.inventory import Inventory, Node, Replica
from fleetctl.inventory.actors import LiveActor
from fleetctl.inventory.claims import Claim
from fleetctl.inventory.marks import refused_claims
from fleetctl.inventory.replicas import find_replicas
from fleetctl.planner.sources import find_ready

NODES = (Node(id="a", name="node-a", ip="10.0.0.1"), Node(id="b", name="node-b", ip="10.0.0.2"),
         Node(id="c", name="node-c", ip="fd00::3"), Node(id="d", name="node-d", ip="host-d"))


def member(node: str = "a", ip: object = "10.0.0.1", rank: int = 0, **more: Any) -> dict[str, Any]:
    role = "Worker" if rank else "Leader"
    return {"group": "main", "copy": 0, "role": role, "rank": rank, "nodeId": node, "ip": ip, "port": 8000, **more}


def actor(*members: dict[str, Any], node: str | None = "a", name: str = "ModelActor:m/one:0", job: str = "01",
          class_name: str = "ModelActor", state: str = "ALIVE", namespace: str | None = "fleet", **mark: Any
          ) -> LiveActor:
    text = json.dumps({"v": 1, "fleet": "prod", "namespace": "fleet", "members": list(members), **mark})
    return LiveActor(actor_id=f"{name}{class_name}{node}{job}", name=name, namespace=namespace, state=state,
                     class_name=class_name, job_id=job, node_id=node, placement_group_id=None, claim=Claim(),
                     repr_name=text if name else "", restarts=0, error=None)


def part(node: str, job: str = "01", class_name: str = "GangMember", state: str = "ALIVE") -> LiveActor:
    """A member of a gang, which has no name."""
    return actor(node=node, name="", job=job, class_name=class_name, state=state)


def only(*actors: LiveActor) -> Replica:
    [found] = find_replicas(actors, "fleet", {}, nodes=NODES)
    return found.replica


def addresses(replica: Replica) -> list[str | None]:
    return [one.address for one in replica.members]


@pytest.mark.parametrize(("node", "ip", "address"), [
    ("a", "10.0.0.1", "10.0.0.1"), ("a", "::ffff:10.0.0.1", "10.0.0.1"), ("c", "FD00:0:0::3", "fd00::3"),
    ("a", "10.0.0.2", None), ("a", "127.0.0.1", None), ("a", "fd00::3", None), ("c", "fd00::3%1", None),
    ("d", "host-d", None), ("d", "10.0.0.4", None), ("z", "10.0.0.1", None), (None, "10.0.0.1", None),
    ("a", "10.0.0.1 ", None), ("a", "a" * 100_000, None), ("a", ["10.0.0.1"], None),
])
def test_an_address_counts_only_if_it_is_that_of_the_actors_node(node: str | None, ip: object, address: str | None):
    found = only(actor(member(node or "a", ip), node=node))
    assert addresses(found) == [address]
    assert bool(found.refused) == (address is None)
    assert all(len(why) < 200 for why in found.refused)


def test_a_single_actor_runs_where_ray_says_whatever_its_repr_says():
    found = only(actor(member("b", "10.0.0.2"), node="a"))
    assert (found.members[0].node_id, found.members[0].address) == ("a", None)
    assert found.refused == [
        "it says that it runs on node b, but Ray lists it on a",
        "it says that it serves at '10.0.0.2', but the address of its node is 10.0.0.1"]


def test_a_gangs_addresses_count_on_the_nodes_of_its_members():
    gang = actor(member("a", "10.0.0.1"), member("b", "10.0.0.2", 1), class_name="GangCoordinator")
    assert addresses(only(gang, part("a"), part("b"))) == ["10.0.0.1", "10.0.0.2"]
    assert only(gang, part("a"), part("b")).refused == []


@pytest.mark.parametrize("others", [
    (), (part("a"),), (part("b", job="02"),), (part("b", class_name="Other"),), (part("b", state="RESTARTING"),),
], ids=["no member", "elsewhere", "of another job", "of another class", "not up"])
def test_a_gang_gets_no_requests_on_a_node_where_it_has_no_member(others: tuple[LiveActor, ...]):
    found = only(actor(member("a", "10.0.0.1"), member("b", "10.0.0.2", 1)), *others)
    assert addresses(found) == ["10.0.0.1", None]
    why = "rank 1 of group main says that it serves at '10.0.0.2', but Ray lists no actor of it on node b"
    assert found.refused == [why]
    assert [one.node_id for one in found.members] == ["a", "b"], "it still counts where it says it runs"


def test_a_warm_gang_holds_weights_on_the_nodes_of_its_holders():
    weights = {"weights": {"artifact": "1" * 64, "port": 7000}}
    warm = actor(member("a", "10.0.0.1", **weights), member("b", "10.0.0.2", 1, **weights),
                 name="WarmReplica:m/one:0", class_name="WarmReplica")
    assert addresses(only(warm, part("b", class_name="WarmHolder"))) == ["10.0.0.1", "10.0.0.2"]
    assert addresses(only(warm)) == ["10.0.0.1", None]


def test_two_members_with_one_rank_are_one_endpoint():
    found = only(actor(member("a", "10.0.0.1"), member("a", "10.0.0.1", port=9000)))
    assert [one.host_port for one in found.members] == ["10.0.0.1:8000", ""]
    assert "another member has the same rank" in found.refused[0]


def test_a_replica_with_many_false_members_has_few_findings():
    found = only(actor(*(member("a", "10.9.9.9", rank) for rank in range(100))))
    assert len(found.refused) == 6
    assert found.refused[-1] == "and 95 more of what it says does not count"
    found = only(actor(*(member("a", f"x{rank}", rank) for rank in range(100))))
    assert len(found.refused) == 6


def test_a_mark_of_another_namespace_marks_nothing():
    one = actor(member())
    foreign = replace(one, repr_name=one.repr_name.replace('"namespace": "fleet"', '"namespace": "theirs"'))
    assert (only(one).fleet, only(foreign).fleet) == ("prod", None)
    assert only(foreign).refused == ["its repr names the namespace theirs, but it runs in fleet"]


def test_a_replica_whose_key_no_fleet_can_have_is_unmanaged():
    for key in (" a", "a\n", "a\u202eb", "a" * 513, "a\x1b[2J"):
        found = only(actor(member(), name=f"ModelActor:{key}:0"))
        assert (found.fleet, found.refused) == (None, ["no fleet can have a model with its key"])


def test_a_refused_claim_is_a_warning_that_names_the_actor():
    found = only(actor(member(ip="10.0.0.9")))
    assert refused_claims([found]) == [f"replica ModelActor:m/one:0: {found.refused[0]}"]


def test_a_replica_that_lies_about_its_address_is_no_source_of_weights():
    weights = {"weights": {"artifact": "1" * 64, "port": 7000}}

    def addresses_of_sources(ip: str) -> list[str]:
        found = only(actor(member("a", ip, **weights)))
        seen = Inventory(observed_at="2026-03-04T12:00:00Z", source="x", nodes=list(NODES), replicas=[found])
        return [one.address for pool in find_ready(seen).pools.values() for one in pool.sources]

    assert addresses_of_sources("10.0.0.1") == ["10.0.0.1:7000"]
    assert addresses_of_sources("192.0.2.66") == addresses_of_sources("10.0.0.2") == []
