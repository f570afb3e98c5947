"""Documents of the client are read once; notes of an apply for the next plan are in its own job's metadata."""

from __future__ import annotations

import json

import pytest
from ray_keys import Keys

from fleetctl.agent import mailbox, notes
from fleetctl.apply.jobs import document
from fleetctl.inventory.jobs import DRAINING

JOBS = b"job"


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    return Keys().install(monkeypatch, mailbox, notes)


def test_a_document_is_deleted_when_it_is_read(keys: Keys) -> None:
    sent = document("j-request", {"plan": {"x": 1}})
    keys.put(sent.uri.encode(), sent.data)
    assert mailbox.take("j-request") == {"plan": {"x": 1}}
    assert keys.table == {}
    assert mailbox.take("j-request") is None


def test_a_document_that_arrives_later_is_awaited(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = document("j-request", {"x": 1})
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            keys.put(sent.uri.encode(), sent.data)

    monkeypatch.setattr(mailbox.time, "sleep", sleep)
    assert mailbox.wait_for("j-request", 30) == {"x": 1}


def test_the_wait_for_a_document_is_bounded(keys: Keys) -> None:
    assert mailbox.wait_for("j-request", 0) is None


def test_a_note_is_added_to_the_metadata(keys: Keys) -> None:
    key = f"{notes.JOB_KEY}j".encode()
    keys.put(key, json.dumps({"status": "RUNNING", "metadata": {"tool": "fleetctl"}}).encode(), namespace=JOBS)
    notes.note("j", DRAINING, "a1 b2")
    assert json.loads(keys.get(key, namespace=JOBS) or b"") == {
        "status": "RUNNING", "metadata": {"tool": "fleetctl", DRAINING: "a1 b2"}}


@pytest.mark.parametrize("kept", [None, b"not JSON", b"[]"])
def test_a_ray_that_stores_jobs_in_another_way_gets_no_note_and_no_error(keys: Keys, kept: bytes | None) -> None:
    key = f"{notes.JOB_KEY}j".encode()
    if kept is not None:
        keys.put(key, kept, namespace=JOBS)
    notes.note("j", DRAINING, "a1")
    assert keys.get(key, namespace=JOBS) == kept
