"""Repair without Ray: a placement group is removed only with complete proof."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from ray.core.generated import gcs_pb2

from fleetctl.agent import leftovers
from fleetctl.agent.cluster import ActorRecord
from fleetctl.agent.on_nodes import NodeAnswer
from fleetctl.agent.run_messages import EventStream, LeftGroup, LeftLock, Orphan, RepairRequest

NAME, GROUP_ID, CREATOR = "ModelActor:org/m:0", "ab" * 18, b"\x01" * 16
REMOVED = gcs_pb2.PlacementGroupTableData.REMOVED


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A cluster in which another replica is alive; the value is the list of removed groups."""
    gone: list[Any] = []
    monkeypatch.setattr(leftovers.ray, "get_runtime_context", lambda: SimpleNamespace(namespace="fleet"))
    monkeypatch.setattr(leftovers.cluster, "taken_names", lambda: {"ModelActor:org/m:1"})
    monkeypatch.setattr(leftovers.cluster, "actor_record", lambda actor_id: ActorRecord(
        "DEAD" if actor_id == CREATOR.hex() else "ALIVE", True, "", ""))
    monkeypatch.setattr(leftovers, "remove_placement_group", gone.append)
    return gone


def group(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"name": NAME, "state": 1, "ray_namespace": "fleet", "creator_actor_id": CREATOR, **more})


@pytest.mark.parametrize(("found", "why"), [
    (group(), None),
    (None, "it is gone"),
    (group(state=REMOVED), "it is gone"),
    (group(name="ModelActor:org/m:2"), "it is gone"),
    (group(ray_namespace="theirs"), "it is in namespace theirs, not in ours"),
    (group(creator_actor_id=b"\xff" * 16), "it was not created by an actor, so it is not ours"),
    (group(creator_actor_id=b""), "it was not created by an actor, so it is not ours"),
    (group(creator_actor_id=b"\x02" * 16), "its replica is alive"),
])
def test_a_group_is_removed_only_if_fleetctl_made_it_and_its_creator_is_dead(
    removed: list[Any], monkeypatch: pytest.MonkeyPatch, found: Any, why: str | None
) -> None:
    monkeypatch.setattr(leftovers, "find_group", lambda _: found)
    assert leftovers.remove_group(GROUP_ID, NAME) == why
    assert [one.id.hex() for one in removed] == ([GROUP_ID] if why is None else [])


def test_a_group_stays_if_an_actor_has_its_replicas_name_again(
    removed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "find_group", lambda _: group(name="ModelActor:org/m:1"))
    assert leftovers.remove_group(GROUP_ID, "ModelActor:org/m:1") == "its replica is alive"
    assert removed == []


def test_each_repair_is_reported_with_its_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(leftovers, "remove_group", lambda *_: "its replica is alive")
    monkeypatch.setattr(leftovers, "release_left", lambda *_: True)
    orphan = Orphan(4, 7, "serve", "org/m", "0")
    monkeypatch.setattr(leftovers, "ask_nodes", lambda *_: [
        NodeAnswer("n1", ["", "it does not end"]), NodeAnswer[list[str]]("n2", None, "no worker answered")])
    code = leftovers.run_repair(RepairRequest(
        [LeftGroup(GROUP_ID, NAME)], [LeftLock("lab", 0)],
        {"n1": [orphan, orphan._replace(pid=5)], "n2": [orphan]}, 1.0, "j"), EventStream())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["subject"], line["done"], line["message"]) for line in lines if line["type"] == "repaired"] == [
        (NAME, False, "its replica is alive"), ("lab", True, ""), ("process 4 of org/m/0", True, ""),
        ("process 5 of org/m/0", False, "it does not end"), ("process 4 of org/m/0", False, "no worker answered")]
    assert [line["thing"] for line in lines if line["type"] == "repaired"] == [
        "placementGroup", "lock", "engine", "engine", "engine"]
    assert (code, lines[-1]["message"]) == (3, "2 of 5 repaired")
