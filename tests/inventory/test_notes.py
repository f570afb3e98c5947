"""Notes of the cluster: the newest note of a node counts until it ends, by id and name; damaged ones are ignored."""

from __future__ import annotations

import pytest

from fleetctl.documents.inventory import Cordon, Node, Replica
from fleetctl.inventory.jobs import Job
from fleetctl.inventory.records import Records, note_text, records_of, with_draining, with_notes

NOW = "2026-03-04T12:00:00Z"


def note(verb: str, node: str = "id-a", name: str = "a", **more: str) -> Job:
    return Job("j", "SUCCEEDED", {"verb": verb, "node": node, "nodeName": name, "who": "ana", **more})


def noted(*jobs: Job, node_id: str = "id-a", name: str = "a") -> Node:
    [node] = with_notes([Node(id=node_id, name=name)], Records(list(records_of(jobs))), NOW)
    return node


def test_the_newest_cordon_counts_until_an_uncordon() -> None:
    first, second = note("cordon", reason="one"), note("cordon", reason="two", until="2026-03-04T14:00:00+01:00")
    assert noted(first, second).cordon == Cordon(reason="two", until="2026-03-04T14:00:00+01:00", by="ana")
    assert noted(second, first).cordon == Cordon(reason="one", by="ana")
    assert noted(first, note("uncordon")).cordon is None
    assert noted(note("uncordon"), first, note("slots", slots="3")).cordon is not None


@pytest.mark.parametrize(("until", "holds"), [
    ("2026-03-04T12:00:01Z", True), ("2026-03-04T12:00:00Z", False), ("2026-03-04T12:30:00+01:00", False),
    ("someday", True), ("2026-13-04T12:00:00Z", True), ("", True),
])
def test_a_cordon_ends_at_its_time_and_one_with_an_unreadable_end_does_not(until: str, holds: bool) -> None:
    assert (noted(note("cordon", until=until)).cordon is not None) == holds


def test_an_ended_cordon_does_not_bring_back_an_older_one() -> None:
    assert noted(note("cordon"), note("cordon", until="2026-03-04T11:00:00Z")).cordon is None


def test_a_restarted_machine_stays_cordoned_by_its_name() -> None:
    assert noted(note("cordon"), node_id="id-new").cordon is not None
    assert noted(note("cordon"), node_id="id-a", name="a-id").cordon is not None
    assert noted(note("cordon"), node_id="id-b", name="b").cordon is None
    assert noted(note("cordon"), note("uncordon", node="id-new"), node_id="id-new").cordon is None


def test_the_time_of_an_uncordon_is_kept_until_the_next_cordon() -> None:
    good = Job("u", "SUCCEEDED", {"verb": "uncordon", "node": "id-a", "nodeName": "a"}, start_time_ms=1_772_625_600_123)
    assert noted(good).uncordoned_at == "2026-03-04T12:00:00Z"
    assert noted(note("cordon"), good).uncordoned_at == "2026-03-04T12:00:00Z"
    assert noted(good, note("cordon")).uncordoned_at is None


@pytest.mark.parametrize(("text", "value"), [("4", 4), ("0", 0), ("", None), ("-1", None), ("1e9", None), ("x", None)])
def test_a_note_of_slots_without_a_number_is_ignored(text: str, value: int | None) -> None:
    slots = noted(note("slots", slots="2"), note("slots", slots=text)).slots
    assert (slots.value if slots else None) == value
    assert slots is None or slots.source == "note of ana"


def test_a_note_without_its_fields_is_ignored() -> None:
    assert noted(Job("j", "SUCCEEDED", {"verb": "cordon"}), Job("k", "SUCCEEDED", {"verb": "slots"})) == Node(
        id="id-a", name="a")
    assert note_text({"verb": "cordon"}) == "cordoned "


def test_a_replica_is_draining_while_a_running_eviction_names_it() -> None:
    def drains(
        status: str = "RUNNING", verb: str = "evict", namespace: str = "fleet", fleet: str | None = "lab", **more: str
    ) -> bool:
        job = Job("j", status, {"verb": verb, "namespace": namespace, "replicas": '["m/1/0", "m/3"]', **more})
        one = Replica(model="m/1", replica_id=0, fleet=fleet)
        [marked, other] = with_draining([one, Replica(model="m", replica_id=1, fleet="lab")], [job], "fleet")
        assert not other.draining
        return marked.draining

    assert drains()
    assert drains("PENDING")
    assert not drains("SUCCEEDED")
    assert not drains("FAILED")
    assert not drains(verb="restart")
    assert not drains(namespace="other")
    assert not drains(fleet=None)
    assert not drains(level="WARM"), "the replica is loading its weights"
    assert drains(level="WARM", ending='["m/1/0"]')
    assert drains(level="COLD")
