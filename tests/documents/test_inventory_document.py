"""The inventory document: lost replicas, the cards of a member, and times."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.documents.inventory import Gpu, Inventory, Replica, ReplicaMember, card_indices, dead_node_ids, is_lost
from fleetctl.documents.loading import load_document
from fleetctl.errors import DocumentError


def inventory(observed_at: str = "2026-03-04T12:00:00Z", **rest: Any) -> Inventory:
    document = {"formatVersion": "1.0", "kind": "Inventory", "observedAt": observed_at, "source": "a test", **rest}
    return load_document(json.dumps(document), Inventory, where="snapshot.json")


def replica(*nodes: str | None, state: str = "ALIVE") -> Replica:
    return Replica.model_validate({"model": "m", "state": state, "members": [{"nodeId": node} for node in nodes]})


def test_a_replica_is_lost_exactly_if_one_of_its_nodes_is_dead() -> None:
    nodes = [{"id": name, "name": name, "state": state} for name, state in
             (("up", "ALIVE"), ("leaving", "DRAINING"), ("down", "DEAD"))]
    dead = dead_node_ids(inventory(nodes=nodes))
    assert dead == {"down"}
    assert is_lost(replica("up", "down"), dead)
    assert is_lost(replica("down", state="RESTARTING"), dead)
    assert not is_lost(replica("up", "leaving"), dead)
    assert not is_lost(replica("not-listed"), dead)
    assert not is_lost(replica(None, state="PENDING_CREATION"), dead)
    assert not is_lost(replica("down", state="DEAD"), dead)


CARDS = [Gpu(index=0, uuid="GPU-a"), Gpu(index=1, uuid="GPU-b"), Gpu(index=2)]


@pytest.mark.parametrize(("uuids", "indices", "expected"), [
    ([], [1], [1]),
    (["GPU-b"], [0], [1]),
    (["GPU-b", "GPU-a"], [0, 1], [1, 0]),
    (["GPU-elsewhere"], [2], [2]),
    (["GPU-a", "GPU-elsewhere"], [1, 2], [1, 2]),
    ([], [7, 2], [2]),
    ([], [1, 1], [1]),
    ([], [], []),
])
def test_a_members_cards_are_found_by_uuid_if_all_are_known(
    uuids: list[str], indices: list[int], expected: list[int]
) -> None:
    assert card_indices(ReplicaMember(gpu_uuids=uuids, gpu_indices=indices), CARDS) == expected


@pytest.mark.parametrize("when", [
    "2026-03-04T12:00:00Z", "2026-03-04T12:00:00.25Z", "2026-03-04T14:00:00+02:00", "2024-02-29T23:59:59-05:30",
])
def test_a_time_with_a_zone_is_kept_as_written(when: str) -> None:
    assert inventory(when).observed_at == when


@pytest.mark.parametrize("when", [
    "2026-03-04T12:00:00", "2026-03-04", "12:00", "now", "", "2026-13-04T12:00:00Z", "2026-02-30T12:00:00Z",
    "2026-03-04T25:00:00Z", "2026-03-04T12:00:00+99:00", "2026-03-04 12:00:00Z", "2026-03-04T12:00:00Zulu",
])
def test_an_invalid_time_or_one_without_a_zone_is_refused(when: str) -> None:
    with pytest.raises(DocumentError) as caught:
        inventory(when)
    assert caught.value.message == (
        "snapshot.json:1:61 is damaged: observedAt: expected RFC 3339 with a zone, such as 2026-03-04T12:00:00Z")
