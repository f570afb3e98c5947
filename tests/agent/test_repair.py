"""Repair without Ray: a placement group goes only where all of the proof is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.core.generated import gcs_pb2

from fleetctl.agent import repair
from fleetctl.agent.cluster import ActorRecord

NAME, GROUP_ID, CREATOR = "ModelActor:org/m:0", "ab" * 18, b"\x01" * 16
REMOVED = gcs_pb2.PlacementGroupTableData.REMOVED


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A cluster in which another replica lives, and the list of what was removed from it."""
    gone: list[Any] = []
    monkeypatch.setattr(repair.ray, "get_runtime_context", lambda: SimpleNamespace(namespace="fleet"))
    monkeypatch.setattr(repair.cluster, "taken_names", lambda: {"ModelActor:org/m:1"})
    monkeypatch.setattr(repair.cluster, "actor_record", lambda actor_id: ActorRecord(
        "DEAD" if actor_id == CREATOR.hex() else "ALIVE", True, "", ""))
    monkeypatch.setattr(repair, "remove_placement_group", gone.append)
    return gone


def group(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"name": NAME, "state": 1, "ray_namespace": "fleet", "creator_actor_id": CREATOR, **more})


@pytest.mark.parametrize(("found", "why"), [
    (group(), None),
    (None, "it is gone"),
    (group(state=REMOVED), "it is gone"),
    (group(name="ModelActor:org/m:2"), "it is gone"),
    (group(ray_namespace="theirs"), "it is in namespace theirs, not in ours"),
    (group(creator_actor_id=b"\xff" * 16), "no actor has created it, so it is not ours"),
    (group(creator_actor_id=b""), "no actor has created it, so it is not ours"),
    (group(creator_actor_id=b"\x02" * 16), "its replica lives"),
])
def test_a_group_is_removed_only_where_its_creator_is_dead_and_it_is_ours(
    removed: list[Any], monkeypatch: pytest.MonkeyPatch, found: Any, why: str | None
) -> None:
    monkeypatch.setattr(repair, "find_group", lambda _: found)
    assert repair.remove_group(GROUP_ID, NAME) == why
    assert [one.id.hex() for one in removed] == ([GROUP_ID] if why is None else [])


def test_a_group_whose_name_an_actor_has_again_stays(removed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "find_group", lambda _: group(name="ModelActor:org/m:1"))
    assert repair.remove_group(GROUP_ID, "ModelActor:org/m:1") == "its replica lives"
    assert removed == []
