"""What is created of a plan, and the checks before it is."""

from __future__ import annotations

import pytest
from attempt_stand_in import MEMBER, REPLICA, SimulatedCluster

from fleetctl.agent import cluster as cluster_module
from fleetctl.agent.create import check, replica_of
from fleetctl.agent.failure import Refused
from fleetctl.agent.messages import Engine, Plan, PlanFleet, ShapeGroup, ShapeMember, Spec


def refusal(not_counted: frozenset[int] = frozenset()) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        check(REPLICA, set(not_counted))
    return caught.value.code, str(caught.value)


def test_a_plan_that_still_holds_passes_the_check(cluster: SimulatedCluster) -> None:
    cluster.names = {"ModelActor:m:0", "ModelActor:m:1", "ModelActor:other:2", "ModelActor:m:x:2"}
    check(REPLICA, set())


def test_a_name_that_exists_is_not_created_again(cluster: SimulatedCluster) -> None:
    cluster.names = {"ModelActor:m:2"}
    assert refusal() == ("NAME_TAKEN", "ModelActor:m:2 already exists")


def test_nothing_is_created_beyond_the_target(cluster: SimulatedCluster) -> None:
    cluster.names = {"ModelActor:m:0", "ModelActor:m:1", "ModelActor:m:7"}
    assert refusal() == ("TARGET_REACHED", "3 of 3 are already live")
    check(REPLICA, {7})


@pytest.mark.parametrize("foreign", ["007", "\u00b2", "+1", "1_0", "9" * 19, "", " 1"])
def test_a_foreign_name_does_not_count_as_live(cluster: SimulatedCluster, foreign: str) -> None:
    cluster.names = {"ModelActor:m:0", "ModelActor:m:1", f"ModelActor:m:{foreign}"}
    check(REPLICA, set())


def test_agent_and_inventory_read_names_by_one_rule() -> None:
    from fleetctl.inventory.marks import parse_actor_name

    for tail in ("0", "7", "10", "999999999999999999", "007", "\u00b2", "9" * 19, "-1", "1 "):
        parsed = parse_actor_name(f"ModelActor:m:{tail}")
        ours = parsed is not None and parsed.replica_id is not None
        assert bool(cluster_module.live_ids("m", {f"ModelActor:m:{tail}"}, set())) is ours, tail


def test_every_member_gets_the_engine_of_its_rank_and_group_and_its_own_log() -> None:
    gang = ShapeGroup("main", [ShapeMember(Engine(["work"]), "Worker", 2), ShapeMember(Engine(["lead"]), "Leader")])
    router = ShapeGroup("router", [ShapeMember(Engine(["route"]))])
    plan = Plan("p", PlanFleet("lab", "ns"), {"h": Spec([gang, router])})
    seats = [("main", 1, 2), ("main", 1, 0), ("router", 0, 0)]
    members = [MEMBER._replace(group=group, copy=copy, rank=rank) for group, copy, rank in seats]
    action = REPLICA._replace(id="m:1/0", fleet="", members=members)
    logs = {f"m:1/0|{group}|{copy}|{rank}": f"{rank}-{copy}.log" for group, copy, rank in seats}
    replica = replica_of(plan, action, logs)
    assert [member.engine.command for member in replica.members] == [["work"], ["lead"], ["route"]]
    assert [member.log for member in replica.members] == ["2-1.log", "0-1.log", "0-0.log"]
    assert all("def main(argv" in member.supervisor for member in replica.members), "the source of the guards"
    assert replica._replace(members=()) == action._replace(fleet="lab", namespace="ns", members=())
    assert not any(member.supervisor for member in action.members), "the plan itself is unchanged"
