"""From a planned action to the arguments of an actor."""

from __future__ import annotations

from typing import Any

from fleetctl.agent.create import ranks_of, replica_of

LEADER = {"role": "Leader", "engine": {"command": ["lead"]}}
GROUP = {"name": "main", "members": [
    {"role": "Worker", "count": 2, "engine": {"command": ["work", "a"]}},
    LEADER,
    {"role": "Worker", "engine": {"command": ["work", "b"]}},
]}


def planned(group: str, copy: int, rank: int) -> dict[str, Any]:
    return {"group": group, "copy": copy, "rank": rank, "role": "?", "node": f"node-{rank}", "nodeId": f"n{rank}"}


def test_rank_0_is_the_leader_and_workers_follow_in_file_order() -> None:
    commands = [member["engine"]["command"] for member in ranks_of(GROUP)]
    assert commands == [["lead"], ["work", "a"], ["work", "a"], ["work", "b"]]


def test_a_replica_of_one_member_has_rank_0() -> None:
    assert ranks_of({"members": [{"engine": {}}]}) == [{"engine": {}}]


def test_every_member_gets_the_engine_of_its_rank_and_group_and_its_own_log() -> None:
    other = {"name": "router", "members": [{"engine": {"command": ["route"]}}]}
    members = [planned("main", 1, 3), planned("main", 1, 0), planned("router", 0, 0)]
    action = {"id": "m:1/0", "model": "m:1", "replicaId": 0, "specHash": "h", "wanted": 2, "lifecycle": {"x": 1},
              "members": members, "priority": 5}
    logs = {f"m:1/0|{member['group']}|{member['copy']}|{member['rank']}": f"{number}.log"
            for number, member in enumerate(members)}
    request = {"specs": {"h": {"workers": [GROUP, other]}}, "fleet": {"name": "lab", "namespace": "ns"}}
    replica = replica_of(request, action, logs)
    assert [member["engine"]["command"] for member in replica["members"]] == [["work", "b"], ["lead"], ["route"]]
    assert [member["log"] for member in replica["members"]] == ["0.log", "1.log", "2.log"]
    assert [member["nodeId"] for member in replica["members"]] == ["n3", "n0", "n0"]
    assert {key: value for key, value in replica.items() if key != "members"} == {
        "id": "m:1/0", "model": "m:1", "replicaId": 0, "specHash": "h", "wanted": 2, "lifecycle": {"x": 1},
        "fleet": "lab", "namespace": "ns", "op": "create"}


def test_every_member_carries_the_source_of_the_supervisor() -> None:
    action = {"id": "m/0", "model": "m", "replicaId": 0, "specHash": "h", "wanted": 1, "lifecycle": {},
              "members": [planned("main", 0, 0)]}
    plan = {"specs": {"h": {"workers": [GROUP]}}, "fleet": {"name": "lab", "namespace": "ns"}}
    [member] = replica_of(plan, action, {"m/0|main|0|0": "x.log"})["members"]
    assert "def main(config" in member["supervisor"]
    assert "supervisor" not in action["members"][0], "the plan itself is unchanged"
