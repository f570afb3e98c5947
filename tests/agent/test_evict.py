"""Evict without Ray: the one replica it names is ended, and every other end has its exit code and its sentence."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.agent import evict
from fleetctl.agent.events import EventStream
from fleetctl.agent.lock import LockBusy

REQUEST = {"model": "org/m", "replicaId": 0, "toolVersion": "1", "job": "j", "holder": {}, "fleet": "lab",
           "lockTimeout": 0}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The named actors; ending one removes it."""
    live = ["ModelActor:org/m:0", "ModelActor:org/m:1"]

    def get_actor(name: str) -> str:
        if name not in live:
            raise ValueError
        return name

    monkeypatch.setattr(evict, "ray", SimpleNamespace(
        __version__="2", get_actor=get_actor, kill=lambda handle, no_restart: live.remove(handle),
        util=SimpleNamespace(list_named_actors=lambda: live),
        get_runtime_context=lambda: SimpleNamespace(get_job_id=lambda: "01")))
    monkeypatch.setattr(evict, "take_lock", lambda *_: SimpleNamespace(release=lambda: None))
    return live


def summary(capsys: pytest.CaptureFixture[str], replica_id: int = 0) -> dict[str, Any]:
    code = evict.run_evict({**REQUEST, "replicaId": replica_id}, EventStream())
    last: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["type"], last["exitCode"]) == ("runSummary", code)
    return last


def test_only_the_named_replica_is_ended(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert summary(capsys)["message"] == "ModelActor:org/m:0 is gone"
    assert names == ["ModelActor:org/m:1"]


def test_a_replica_that_does_not_exist_is_1(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert (summary(capsys, 7)["exitCode"], len(names)) == (1, 2)


def test_a_busy_lock_is_5_and_ends_nothing(
    names: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any) -> None:
        raise LockBusy("lab", {"job": "j9"})

    monkeypatch.setattr(evict, "take_lock", busy)
    last = summary(capsys)
    assert (last["exitCode"], last["message"]) == (5, "the lock of fleet lab is held by job j9")
    assert len(names) == 2
