"""What is created of a plan, and the checks before it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attempt_stand_in import MEMBER, REPLICA, SimulatedCluster

from fleetctl.agent import cluster as cluster_module
from fleetctl.agent import create as create_module
from fleetctl.agent.create import CreatedHere, check, create, remote_class, replica_of, take_back
from fleetctl.agent.gang import GangCoordinator
from fleetctl.agent.messages import Engine, Member, Replica
from fleetctl.agent.replica import ModelActor
from fleetctl.agent.report import Refused
from fleetctl.agent.run_messages import Plan, PlanFleet, ShapeGroup, ShapeMember, Spec
from fleetctl.agent.view import View
from fleetctl.agent.wire import from_parts


def view() -> View:
    return View(lambda: 0.0)


def refusal(not_counted: frozenset[int] = frozenset()) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        check(REPLICA, set(not_counted), view())
    return caught.value.code, str(caught.value)


def test_a_plan_that_still_holds_passes_the_check(cluster: SimulatedCluster) -> None:
    cluster.names = {"ModelActor:m:0", "ModelActor:m:1", "ModelActor:other:2", "ModelActor:m:x:2"}
    check(REPLICA, set(), view())


def test_a_name_that_exists_is_not_created_again(cluster: SimulatedCluster) -> None:
    cluster.names = {"ModelActor:m:2"}
    assert refusal() == ("NAME_TAKEN", "ModelActor:m:2 already exists")


def test_only_a_promotion_may_take_the_id_of_a_warm_replica(cluster: SimulatedCluster) -> None:
    cluster.names = {"WarmReplica:m:2"}
    assert refusal() == ("NAME_TAKEN", "WarmReplica:m:2 already exists")
    promotion = REPLICA._replace(op="promote")
    check(promotion, set(), view())
    cluster.names.add("ModelActor:m:2")
    with pytest.raises(Refused, match="ModelActor:m:2 already exists"):
        check(promotion, set(), view())


def test_nothing_is_created_beyond_the_target(cluster: SimulatedCluster) -> None:
    cluster.names = {"ModelActor:m:0", "ModelActor:m:1", "ModelActor:m:7"}
    assert refusal() == ("TARGET_REACHED", "3 of 3 are already live")
    check(REPLICA, {7}, view())


@pytest.mark.parametrize("foreign", ["007", "\u00b2", "+1", "1_0", "9" * 19, "", " 1"])
def test_a_foreign_name_does_not_count_as_live(cluster: SimulatedCluster, foreign: str) -> None:
    cluster.names = {"ModelActor:m:0", "ModelActor:m:1", f"ModelActor:m:{foreign}"}
    check(REPLICA, set(), view())


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


class Ray:
    """Ray's side of a creation: what it was asked for, and perhaps why it refuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind: type | None = None
        self.options: dict[str, Any] = {}
        self.sent: Replica | None = None
        self.refusal = ""
        self.names: list[str] = []
        self.handle = SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda: "ab"))
        monkeypatch.setattr(create_module, "remote_class", self.of)
        monkeypatch.setattr(create_module, "time", SimpleNamespace(time=lambda: 1234.5678))
        monkeypatch.setattr(cluster_module, "free_by_node", lambda: {ID: {"GPU": 4.0}})
        monkeypatch.setattr(cluster_module, "taken_names", lambda: set(self.names))
        monkeypatch.setattr(cluster_module, "alive_nodes", dict)
        monkeypatch.setattr(cluster_module, "draining_nodes", set)

    def of(self, kind: type) -> Any:
        self.kind = kind
        return SimpleNamespace(options=self.with_options)

    def with_options(self, **options: Any) -> Any:
        self.options = options
        return SimpleNamespace(remote=self.remote)

    def remote(self, *parts: bytes) -> Any:
        if self.refusal:
            raise ValueError(self.refusal)
        self.sent = from_parts(Replica, parts)
        return self.handle


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    return Ray(monkeypatch)


ID, OTHER_ID = "ab" * 28, "cd" * 28  # Ray's ids are hexadecimal
HERE, FAR = MEMBER._replace(node_id=ID), MEMBER._replace(node_id=OTHER_ID, node="node-b", rank=1)
SINGLE, GANG = REPLICA._replace(members=[HERE]), REPLICA._replace(members=[HERE, FAR])


@pytest.mark.parametrize(("members", "kind", "claim", "free"), [
    ([HERE._replace(cpus=20_000)], ModelActor, {"num_cpus": 2, "num_gpus": 1}, {ID: {"GPU": 4.0}}),
    ([HERE, FAR], GangCoordinator, {"num_cpus": 0, "num_gpus": 0}, {ID: {"GPU": 4.0}, OTHER_ID: {}}),
], ids=["one member", "gang"])
def test_a_replica_is_a_named_actor_on_its_first_node_with_the_claim_of_its_own_process(
    ray: Ray, members: list[Member], kind: type, claim: dict[str, float], free: dict[str, dict[str, float]]
) -> None:
    replica = REPLICA._replace(members=tuple(members))
    created = create(replica, view())
    where = ray.options.pop("scheduling_strategy")
    assert (ray.kind, where.node_id, where.soft, ray.sent) == (
        kind, ID, False, replica._replace(created_ms=created.at_ms))
    assert ray.options == {"name": "ModelActor:m:2", "lifetime": "detached", "max_restarts": -1, **claim}
    assert (created.name, created.handle, created.actor_id) == ("ModelActor:m:2", ray.handle, "ab")
    assert (created.free_before, created.at_ms) == (free, 1_234_567)


def test_the_claim_of_a_created_replica_names_each_node(ray: Ray) -> None:
    assert create(GANG, view()).claim == "1 GPU on node-a; 1 GPU on node-b"


def test_of_two_runs_that_create_a_replica_the_second_is_told_that_its_name_is_taken(ray: Ray) -> None:
    ray.refusal, ray.names = "The name ModelActor:m:2 is already taken", ["ModelActor:m:2"]
    with pytest.raises(Refused) as caught:
        create(SINGLE, view())
    assert (caught.value.code, str(caught.value)) == ("NAME_TAKEN", "ModelActor:m:2 already exists")


def test_another_refusal_of_ray_is_told_in_its_first_line(ray: Ray) -> None:
    ray.refusal, ray.names = "the resources are negative\nwith details", ["ModelActor:m:1"]
    with pytest.raises(Refused) as caught:
        create(SINGLE, view())
    assert (caught.value.code, str(caught.value)) == ("REFUSED_BY_RAY", "the resources are negative")


def test_ray_gets_each_class_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain:
        """Nobody else's."""

    sent = list[type]()
    monkeypatch.setattr(create_module, "ray", SimpleNamespace(remote=lambda plain: sent.append(plain) or "packed"))
    assert [remote_class(Plain), remote_class(Plain)] == ["packed", "packed"]
    assert sent == [Plain]


def test_a_replica_that_is_taken_back_does_not_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = list[tuple[object, bool]]()

    def kill(handle: object, *, no_restart: bool = True) -> None:
        killed.append((handle, no_restart))

    monkeypatch.setattr(create_module, "ray", SimpleNamespace(kill=kill))
    take_back(CreatedHere("ModelActor:m:2", "the handle", "ab", "1 GPU", {}, 0))
    assert killed == [("the handle", True)]
