"""Gangs on a real Ray: whole or not at all, each rank knows its leader, a lost member restarts the whole gang."""

from __future__ import annotations

import json
import os
import signal

import pytest
from cluster import eventually
from e2e_world import World, member, model

pytestmark = pytest.mark.ray


def gang(*flags: str) -> dict[str, object]:
    return model("org/gang", 1, member(*flags, role="Leader", gpus=2), member(*flags, role="Worker", count=2, gpus=2))


def test_a_gang_of_three_starts_whole_and_each_rank_knows_its_leader(world: World) -> None:
    wanted = model("org/gang", 1, member("--ready-after", "3", role="Leader", gpus=2),
                   member("--ready-after", "2", role="Worker", count=2, gpus=2))
    # a rank that is still loading is not down, however soon its liveness probe fails
    wanted["workers"][0]["members"][1]["engine"]["liveness"] = {"http": {"path": "/health"}, "period": "200ms"}
    wanted["workers"][0]["members"][1]["engine"] |= {"ports": ["nixl"], "env": {
        **wanted["workers"][0]["members"][1]["engine"].get("env", {}), "PEER": "tcp://$(FLEETCTL_LEADER_ENDPOINT)"}}
    world.write(wanted)
    summary = world.apply_result()
    assert summary["exitCode"] == 0
    [replica] = world.replicas()
    assert len({each["nodeId"] for each in replica["members"]}) == 3
    environments = [world.ask({"address": f"{each['address']}:{each['port']}"}) for each in replica["members"]]
    leader = next(env for env in environments if env["FLEETCTL_RANK"] == "0")
    assert sorted(env["FLEETCTL_RANK"] for env in environments) == ["0", "1", "2"]
    assert {env["FLEETCTL_LEADER_ADDRESS"] for env in environments} == {leader["FLEETCTL_LEADER_ADDRESS"]}
    assert {env["FLEETCTL_LEADER_PORT"] for env in environments} == {leader["FLEETCTL_LEADER_PORT"]}
    assert leader["FLEETCTL_LEADER_PORT"] != leader["FLEETCTL_PORT"]
    assert {env["FLEETCTL_GROUP_SIZE"] for env in environments} == {"3"}
    assert [env["FLEETCTL_RANKS"] for env in environments] == ["0,1", "2,3", "4,5"]
    assert [env["FLEETCTL_HOST"] for env in environments] == [each["address"] for each in replica["members"]]
    assert [len({env[f"FLEETCTL_{name}"] for env in environments}) for name in ("NAME", "NODE")] == [3, 3]
    meeting = f"{leader['FLEETCTL_LEADER_ADDRESS']}:{leader['FLEETCTL_LEADER_PORT']}"
    assert {env.get("PEER", f"tcp://{meeting}") for env in environments} == {f"tcp://{meeting}"}
    assert ["FLEETCTL_PORT_NIXL" in env for env in environments] == [False, True, True]
    assert {env["CUDA_VISIBLE_DEVICES"] for env in environments} == {"0,1"}

    # a coordinator killed after its job has ended restarts with the whole gang and one placement group
    before = set(world.engines())
    os.kill(world.actors()["ModelActor:org/gang:0"]["pid"], signal.SIGKILL)
    eventually(lambda: not before & set(world.engines()), "every process of the old gang is gone")
    eventually(lambda: world.actors()["ModelActor:org/gang:0"]["state"] == "ALIVE", "the gang is back")
    assert world.cluster.groups().count("ModelActor:org/gang:0") == 1

    # a gang whose worker dies restarts as well
    before = set(world.engines())
    [replica] = world.replicas()
    worker = next(each for each in replica["members"] if each["rank"] == 2)
    os.kill(int(world.ask({"address": f"{worker['address']}:{worker['port']}"})["E2E_PID"]), signal.SIGKILL)
    eventually(lambda: not before & set(world.engines()), "no process of the old gang is left")
    eventually(lambda: world.actors()["ModelActor:org/gang:0"]["restarts"] == 2, "it was restarted")
    eventually(lambda: world.actors()["ModelActor:org/gang:0"]["state"] == "ALIVE", "the gang is back again")
    assert world.apply_result()["outcomes"] == []


def test_without_enough_nodes_no_member_of_a_gang_starts(world: World) -> None:
    world.cluster.hold(namespace=world.fleet, name="foreign", node="b", gpus=1)
    world.write(gang("--plain"))
    summary = world.apply_result()
    assert summary["exitCode"] == 3
    [blocked] = summary["outcomes"]
    assert blocked["code"] == "GANG_NEEDS_NODES"
    assert world.engines() == []
    assert world.cluster.groups() == []
    assert set(world.actors()) == {"foreign"}


def test_a_gang_whose_member_is_killed_while_it_starts_fails_soon_and_leaves_no_actor(world: World) -> None:
    """A Ray worker exits only after its tasks are done, so the coordinator must not wait for a task that never ends."""
    world.write(gang("--plain", "--ready-after", "900"))
    client = world.start("apply", "-f", world.file, "--yes", "--format", "json")
    eventually(lambda: len(world.engines()) == 3, "all engines run, and the gang is not ready")
    before = set(world.cluster.classes(name="GangMember"))
    os.kill(sorted(before)[-1], signal.SIGKILL)
    out, messages = client.communicate(timeout=600)
    [row] = json.loads(out)["outcomes"]
    assert (client.returncode, row["outcome"]) == (3, "failed"), messages
    assert " of group main died: " in row["message"]
    assert world.actors() == {}
    eventually(lambda: not world.engines(), "no engine of the gang is left")
    eventually(lambda: not world.cluster.groups(), "its placement group was given back")


@pytest.mark.long
def test_a_gang_whose_member_is_killed_before_its_engine_runs_fails_soon(world: World) -> None:
    world.write(gang("--plain"))
    client = world.start("apply", "-f", world.file, "--yes", "--format", "json")
    members = eventually(lambda: world.cluster.classes(name="GangMember", starting=True), "a member is on its way")
    os.kill(members[0], signal.SIGKILL)
    out, messages = client.communicate(timeout=600)
    [row] = json.loads(out)["outcomes"]
    assert (client.returncode, row["outcome"]) == (3, "failed"), messages
    assert world.actors() == {}
    eventually(lambda: not world.engines(), "no engine of the gang is left")
    eventually(lambda: not world.cluster.groups(), "its placement group was given back")


def test_a_gang_whose_member_fails_to_start_ends_all_its_members(world: World) -> None:
    failing = member("--plain", "--exit-code", "3", role="Worker", count=2, gpus=1)
    world.write(model("org/gang", 1, member("--plain", "--ready-after", "900", role="Leader", gpus=1), failing))
    summary = world.apply_result()
    [failed] = summary["outcomes"]
    assert (summary["exitCode"], failed["outcome"], failed["code"]) == (3, "failed", "ENGINE_EXITED")
    assert "rank" in failed["message"]
    assert "cannot find the weights" in failed["message"]
    assert world.actors() == {}
    eventually(lambda: not world.engines(), "no engine of the gang is left")
    eventually(lambda: not world.cluster.groups(), "its placement group was given back")
