"""When a WARM replica leaves, how it counts bytes, and its files in memory; tests/e2e covers the rest on a real Ray."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from fleetctl.agent import driver, warm
from fleetctl.agent.messages import Place, ServedWeights, WarmCopy
from fleetctl.agent.weights import memory
from fleetctl.agent.weights.index import File, Index, WeightsError
from fleetctl.agent.weights.store import Entry
from fleetctl.inventory.marks import read_marks

A, B = "a" * 64, "b" * 64


def place(node: str, artifact: str | None, view: str | None = None, size: int = 5) -> Place:
    return Place(node_id=node, weights=ServedWeights(artifact, view, bytes=size) if artifact else None)


def test_weights_that_members_of_a_node_share_count_once() -> None:
    assert warm.bytes_by_node([place("x", A), place("x", A), place("x", A, "v"), place("x", B), place("y", A),
                               place("z", None)]) == {"x": 15, "y": 5}


@pytest.mark.parametrize(("hot", "answer", "waited_s", "leaves"), [
    ("first", None, 10, False), ("first", None, warm.ABANDONED_S, True), (None, None, 1e6, False),
    ("second", True, 0, True), ("second", ray.exceptions.GetTimeoutError(), 1e6, False),
    ("second", ray.exceptions.RayActorError(), 1e6, False),
    ("second", ray.exceptions.OutOfMemoryError("low on memory"), 1e6, False),
])
def test_a_warm_replica_leaves_when_another_hot_replica_is_ready_or_its_own_never_ended(
        monkeypatch: pytest.MonkeyPatch, hot: str | None, answer: Any, waited_s: float, *, leaves: bool) -> None:
    def get_actor(name: str) -> Any:
        assert name == "ModelActor:m:3"
        if hot is None:
            raise ValueError
        return SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda: hot),
                               __ray_ready__=SimpleNamespace(remote=lambda: "calls"))

    def get(_: str, **__: float) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(warm, "ray", SimpleNamespace(get_actor=get_actor, get=get, exceptions=ray.exceptions))
    one = warm.WarmReplica.__new__(warm.WarmReplica)
    one._replica, one._ready_refs = WarmCopy("m", 3, "f", "fleet", "", "first", ()), {}
    assert one._is_unneeded(waited_s) is leaves


@pytest.mark.parametrize("death", [ray.exceptions.ActorDiedError(), ray.exceptions.OutOfMemoryError("low on memory")])
def test_a_warm_replica_restarts_when_one_of_its_holders_has_ended(
    monkeypatch: pytest.MonkeyPatch, death: Exception
) -> None:
    answers: list[Exception] = [ConnectionError("no head"), death]

    def get(_: object) -> None:
        raise answers.pop(0)

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(warm, "ray", SimpleNamespace(get=get, exceptions=ray.exceptions))
    monkeypatch.setattr(warm, "os", SimpleNamespace(_exit=leave))
    monkeypatch.setattr(warm, "POLL_S", 0)
    one = warm.WarmReplica.__new__(warm.WarmReplica)
    one._holders = []
    with pytest.raises(SystemExit):
        one._watch()
    assert not answers, "after a query without an answer, the next one is sent"


def test_files_are_mapped_whole_and_can_be_touched(tmp_path: Path) -> None:
    folder = tmp_path / A / "files"
    folder.mkdir(parents=True)
    (folder / "empty").write_bytes(b"")
    (folder / "data").write_bytes(os.urandom(3 * 4096 + 1))
    files = File("data", 3 * 4096 + 1, "", ()), File("empty", 0, "", ())
    held = memory.InMemory(Entry(str(tmp_path), A, None), Index(files))
    held.touch()
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(folder / "data") in line]
    assert len(mapped) == 1


@pytest.mark.parametrize(("available", "limit", "used", "fits"), [
    (100, None, 0, 80), (90, None, 0, 70), (100, 50, 10, 39), (20, 50, 0, 0), (100, 50, 60, 0), (100, "max", 90, 80),
])
def test_a_tenth_of_the_host_and_of_the_cgroup_stays_free(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, available: int, limit: int | str | None, used: int,
        fits: int) -> None:
    """In MiB, for a host with 200 MiB. 4 MiB of the cgroup's memory are page cache."""
    mib = 1 << 20
    (tmp_path / "meminfo").write_text(f"MemTotal: {200 << 10} kB\nMemAvailable: {available << 10} kB\n")
    (tmp_path / "own").write_text("1:name=systemd:/x\n0::/pod/ray\n")
    if limit is not None:
        folder = tmp_path / "groups" / "pod"
        folder.mkdir(parents=True)
        (folder / "memory.max").write_text(f"{limit if isinstance(limit, str) else limit * mib}\n")
        (folder / "memory.current").write_text(f"{used * mib}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {3 * mib}\nactive_file {mib}\n")
    monkeypatch.setattr(driver, "MEMORY", str(tmp_path / "meminfo"))
    for name, path in (("OWN_GROUP", "own"), ("GROUPS", "groups")):
        monkeypatch.setattr(memory, name, str(tmp_path / path))
    if fits:
        memory.require_memory(fits * mib)
    with pytest.raises(WeightsError, match="a tenth must stay free"):
        memory.require_memory(fits * mib + 1)


def test_an_actor_asked_to_stay_waits_again_unless_it_is_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    itself = SimpleNamespace(leave=SimpleNamespace(remote=lambda: calls.append("leave")))
    monkeypatch.setattr(warm, "ray", SimpleNamespace(
        get_runtime_context=lambda: SimpleNamespace(current_actor=itself)))
    one = warm.WarmReplica.__new__(warm.WarmReplica)
    one._leave_lock, one._leaving, one._since = threading.Lock(), False, -warm.ABANDONED_S
    monkeypatch.setattr(one, "_is_unneeded", lambda waited_s: waited_s >= warm.ABANDONED_S)
    one.stay()
    assert (one._leave_if_unneeded(), calls) == (False, [])
    one._since -= warm.ABANDONED_S
    assert (one._leave_if_unneeded(), calls) == (True, ["leave"])
    with pytest.raises(RuntimeError, match="leaving"):
        one.stay()


def test_a_warm_replica_describes_itself_as_in_the_last_release() -> None:
    one = warm.WarmReplica.__new__(warm.WarmReplica)
    one._replica = WarmCopy("m", 3, "f", "fleet", "5pec", "h0t", ())
    one._locked, one._ready_at = True, "2026-11-27T04:00:00Z"
    one._places = []
    assert repr(one) == "WarmReplica of m/3"
    served = ServedWeights(A, None, whole=True, port=7000, bytes=5, verified="2026-11-27T03:00:00Z")
    one._places = [Place(group="main", role="Standalone", node_id="n", ip="10.0.0.1", memory=5, weights=served)]
    told = json.loads(repr(one))
    assert list(told) == ["v", "level", "fleet", "namespace", "specHash", "madeFrom", "readyAt", "locked", "members"]
    assert told["members"][0].items() >= {
        "group": "main", "copy": 0, "role": "Standalone", "rank": 0, "nodeId": "n", "ip": "10.0.0.1", "memory": 5,
        "weights": {"artifact": A, "view": None, "whole": True, "port": 7000, "bytes": 5,
                    "verified": "2026-11-27T03:00:00Z"}}.items()
    assert read_marks(repr(one)).problems == ()
    assert (told["v"], told["level"], told["madeFrom"], told["locked"]) == (1, "WARM", "h0t", True)
