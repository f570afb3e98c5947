"""Documents of the client are read once."""

from __future__ import annotations

import pytest
from ray_keys import Keys

from fleetctl.agent import run_messages
from fleetctl.apply.jobs import document


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    return Keys().install(monkeypatch, run_messages)


def test_a_document_is_deleted_when_it_is_read(keys: Keys) -> None:
    sent = document("j-request", {"plan": {"x": 1}})
    keys.put(sent.uri.encode(), sent.data)
    assert run_messages.take("j-request") == {"plan": {"x": 1}}
    assert keys.table == {}
    assert run_messages.take("j-request") is None


def test_a_document_that_arrives_later_is_awaited(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = document("j-request", {"x": 1})
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            keys.put(sent.uri.encode(), sent.data)

    monkeypatch.setattr(run_messages.time, "sleep", sleep)
    assert run_messages.wait_for("j-request", 30) == {"x": 1}


def test_the_wait_for_a_document_is_bounded(keys: Keys) -> None:
    assert run_messages.wait_for("j-request", 0) is None
