"""Readiness after the start: what counts as not ready, and the record by which the cluster learns of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_run import ActorStandIn, Run
from marked_processes import eventually
from ray_keys import Keys

from fleetctl.agent import gang, lock, readiness, records
from fleetctl.agent.cluster import GONE
from fleetctl.agent.gang import GangCoordinator, MemberReport
from fleetctl.agent.messages import Lifecycle, Place, Replica
from fleetctl.agent.readiness import NotReady, Recorder, is_ready
from fleetctl.agent.report import StartFailed, describe

ENGINE = """\
import os, socket, sys, time
def listen():
    found = socket.create_server(("127.0.0.1", int(sys.argv[1])), reuse_port=True)
    found.settimeout(0.02)
    return found
server = listen()
while True:
    mode = open("mode").read() if os.path.exists("mode") else ""
    if mode == "closed":
        if server: server.close()
        server = time.sleep(0.02)
        continue
    server = server or listen()
    try:
        client, _ = server.accept()
    except TimeoutError:
        continue
    client.recv(1000)
    if mode == "slow":
        time.sleep(2.5)
    try:
        client.sendall(b"HTTP/1.1 %s\\r\\nContent-Length: 0\\r\\n\\r\\n" % (b"503 No" if mode == "503" else b"200 OK"))
        client.close()
    except OSError:
        pass
"""
"""Answers 200, or as its file `mode` says: 503, slow, closed."""
SINCE = NotReady("2026-03-04T12:03:11Z", "GET /health on port 8000: HTTP 503")
READY_AT = "2026-03-04T12:00:00Z"
REPLICA = Replica("org/m/3", "org/m", 3, Lifecycle(60.0), "h", fleet="lab")


def become(actor: ActorStandIn, mode: str) -> None:
    """Let the engine of a stand-in behave in this way from now on."""
    folder = actor.temp / actor.fresh_folders()[0]
    (folder / "new").write_text(mode)
    (folder / "new").rename(folder / "mode")


def start(run: Run, **readiness: Any) -> ActorStandIn:
    """Start an engine and return it once it is ready."""
    command = (sys.executable, "-I", "-S", "-c", ENGINE, "$(FLEETCTL_PORT)")
    limit_s = readiness.get("timeout", 60.0)  # only a test of the limit reaches it, however busy this machine is
    actor = run(*command, readiness={"period": 0.02, **readiness}, order={"goesOn": [0.05, limit_s]})
    actor.read_report("serves")
    return actor


@pytest.mark.slow
@pytest.mark.parametrize(("probe", "mode", "why"), [
    ({"http": {"path": "/health"}}, "503", r"GET /health on port \d+: HTTP 503"),
    ({"http": {"path": "/health"}, "timeout": 1.0}, "slow", r"GET /health on port \d+: (TimeoutError|timeout)"),
    ({"http": {"path": "/health"}}, "closed", r"GET /health on port \d+: ConnectionRefusedError"),
    ({"tcp": {}}, "closed", r"connect to port \d+: ConnectionRefusedError"),
    ({"exec": {"command": ["sh", "-c", "! grep -q 503 mode"]}}, "503", "sh: exit code 1")])
def test_an_engine_that_stops_answering_is_not_ready_until_it_answers_again(
    run: Run, probe: dict[str, Any], mode: str, why: str
) -> None:
    import re

    actor = start(run, **probe)
    for _ in range(2):
        become(actor, mode)
        assert re.fullmatch(why, actor.read_report("answers", "down"))
        become(actor, "")
        assert actor.read_report("answers", "down") is None


@pytest.mark.slow
def test_failures_count_only_in_a_row_and_are_no_reason_to_end_the_engine(run: Run, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    probe = f'echo >> {tries}; n=$(wc -l < {tries}); test "$n" = 1 || test $((n % 3)) = 0 -a "$n" -lt 13 || exit $n'
    actor = start(run, exec={"command": ["sh", "-c", probe]}, failureThreshold=3)
    assert actor.read_report("answers", "down") == "sh: exit code 15", "12 was the last success"
    assert actor.process.poll() is None


def test_the_probe_of_a_ready_engine_is_slower_than_that_of_a_starting_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from fleetctl.agent.messages import PortProbe, Probe

    asked: list[Probe] = []
    monkeypatch.setattr(readiness.threading, "Thread", lambda target, **_: SimpleNamespace(start=target))
    for probe in (Probe(PortProbe(), period=1.0, timeout=1.0), Probe(PortProbe(), period=30.0, timeout=20.0)):
        waited: list[float] = []
        ended: Any = SimpleNamespace(wait=lambda seconds, waited=waited: waited.append(seconds) or True)
        readiness.keep_probing(probe, lambda probe: asked.append(probe) or (lambda: None), ended, lambda _: None)
        assert waited == [asked[-1].period]
    assert [(probe.period, probe.timeout, probe.failure_threshold) for probe in asked] == [(10, 5, 3), (30, 20, 3)]


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    ray = SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(
        get_job_id=lambda: "2c010000", get_actor_id=lambda: "a3"))
    for module in (readiness, records):
        monkeypatch.setattr(module, "ray", ray)
    monkeypatch.setattr(readiness, "RECORD_S", 0.0)
    return Keys().install(monkeypatch, lock, records)


def recorded() -> Any:
    """What the records say of the actor."""
    found = records.records_of(records.NOT_READY, "lab").get("a3")
    return found and found.payload


def seen(recorder: Recorder, state: NotReady | None, check: Callable[[], bool]) -> None:
    """Tell a recorder the same state until the check is true, as an actor does after each probe, and it has written."""
    def told() -> bool:
        recorder.see(state)
        return check()

    eventually(told, "it was recorded")
    with recorder._busy:
        pass


def test_a_change_is_recorded_and_forgotten_when_the_engine_answers_again(keys: Keys) -> None:
    recorder = Recorder(REPLICA, READY_AT, restarted=False)
    recorder.see(None)
    assert not keys.table, "a replica that stays ready writes nothing"
    seen(recorder, SINCE, lambda: recorded() is not None)
    assert recorded() == {"model": "org/m", "replicaId": 3, "readyAt": READY_AT, "since": SINCE.since,
                          "reason": "GET /health on port 8000: HTTP 503"}
    report = describe(REPLICA, (), READY_AT)
    assert (is_ready("a3", report), is_ready("other", report)) == (False, True)
    assert is_ready("a3", describe(REPLICA, (), "2026-03-04T13:00:00Z")), "the record is of its former life"
    seen(recorder, None, lambda: recorded() is None)
    assert is_ready("a3", report)


def test_a_record_of_the_former_life_is_removed_after_a_restart(keys: Keys) -> None:
    seen(Recorder(REPLICA, READY_AT, restarted=False), SINCE, lambda: recorded() is not None)
    again = Recorder(REPLICA, "2026-03-04T13:00:00Z", restarted=True)
    seen(again, None, lambda: recorded() is None)
    table = dict(keys.table)
    third = Recorder(REPLICA, "2026-03-04T14:00:00Z", restarted=True)
    seen(third, None, lambda: third._is_known)
    assert keys.table == table, "where there is none, it writes nothing"


def test_an_actor_writes_at_most_once_in_ten_seconds(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(readiness, "RECORD_S", 10.0)
    monkeypatch.setattr(readiness, "time", SimpleNamespace(monotonic=lambda: now[0]))
    recorder = Recorder(REPLICA, READY_AT, restarted=False)
    recorder.see(SINCE)
    eventually(lambda: recorded() is not None and not recorder._busy.locked(), "the first change was recorded")
    now[0] += 9.9
    recorder.see(None)
    assert recorded() is not None
    now[0] += 0.2
    seen(recorder, None, lambda: recorded() is None)


def test_a_replica_that_is_being_ended_is_not_ready_from_then_on(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this an apply that ends during its engine's grace period would call it ready."""
    recorder = Recorder(REPLICA, READY_AT, restarted=False)
    seen(recorder, None, lambda: recorder._is_known)
    monkeypatch.setattr(readiness, "RECORD_S", 10.0)
    recorder._next = float("inf")  # it does not wait for the next write
    recorder.leave("it is being ended")
    eventually(lambda: recorded() is not None, "it was recorded")
    assert recorded()["reason"] == "it is being ended"
    assert not is_ready("a3", describe(REPLICA, (), READY_AT))


def test_what_cannot_be_written_is_written_later(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []

    def down(prefix: bytes, **_: object) -> list[bytes]:
        tried.append(prefix)
        raise ConnectionError("Ray's head is down")

    recorder = Recorder(REPLICA, READY_AT, restarted=True)
    with monkeypatch.context() as patched:
        patched.setattr(lock, "_internal_kv_list", down)
        for state in (None, SINCE):
            tried.clear()
            seen(recorder, state, lambda: len(tried) > 2)
    seen(recorder, SINCE, lambda: recorded() is not None)


def test_without_a_free_thread_it_is_written_later(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: object) -> None:
        raise RuntimeError("can't start new thread")

    recorder = Recorder(REPLICA, READY_AT, restarted=False)
    with monkeypatch.context() as patched:
        patched.setattr(readiness.threading.Thread, "start", none_left)
        recorder.see(SINCE)
        recorder.leave("it is being ended")
    seen(recorder, SINCE, lambda: recorded() is not None)


def test_the_row_is_named_only_while_a_replica_is_not_ready(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row that is named costs every plan a request."""
    def named() -> bool:
        return "fleetctl.records.notready.lab" in records._listing().rows

    records.add("draining", "n1", {})
    assert not named()
    for _ in range(2):
        assert records.add(records.NOT_READY, "a3", {}, "lab")
        assert named()
        assert records.remove(records.NOT_READY, "a3", "lab")
        assert not named()
    records.add(records.NOT_READY, "a3", {}, "lab")
    monkeypatch.setattr(records.cluster, "actor_record", lambda _: GONE)
    records.begin_run("j")
    assert not named(), "the actor is gone"


def test_a_row_that_was_written_but_not_named_is_named_by_the_next_try(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.add("draining", "n1", {})
    with monkeypatch.context() as patched:
        patched.setattr(records, "_table", lambda: 1 / 0)
        assert not records.add(records.NOT_READY, "a3", {}, "lab")
    assert records.add(records.NOT_READY, "a3", {}, "lab")
    assert "fleetctl.records.notready.lab" in records._listing().rows


def test_an_actor_does_not_lower_the_number_of_drivers(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    records.add("draining", "n1", {})
    monkeypatch.setattr(records, "ray", SimpleNamespace(
        get_runtime_context=lambda: SimpleNamespace(get_job_id=lambda: "05000000")))
    records.add(records.NOT_READY, "a3", {}, "lab")
    assert records._listing().drivers == "300"


def test_a_gang_is_not_ready_while_one_of_its_leaders_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [Place(group=group, rank=rank) for group in ("main", "draft") for rank in (0, 1)]
    ready, silent = MemberReport(True, 8000), MemberReport()
    late, ended = MemberReport(True, 8000, not_ready=SINCE), MemberReport(code="ENGINE_EXITED", reason="it ended")
    rounds = [[ready, silent] * 2, [ready, silent, late, silent], [ready, silent] * 2, [silent, ended] * 2]
    coordinator: Any = object.__new__(GangCoordinator)
    told: list[Any] = []
    coordinator._places, coordinator._leaving, coordinator._replica = places, False, REPLICA
    coordinator._recorder = SimpleNamespace(see=told.append)
    coordinator._call_all = lambda _: rounds.pop(0)
    coordinator._replica = REPLICA._replace(members=(SimpleNamespace(log="log"),))
    coordinator._end_members = lambda: None
    coordinator._failure_of_first = lambda failure: failure  # it asks the members' actors
    monkeypatch.setattr(gang, "POLL_S", 0)
    monkeypatch.setattr(gang, "log_of", lambda _: SimpleNamespace(end=lambda _: None))
    failure: StartFailed = coordinator._await_end()
    assert failure.code == "ENGINE_EXITED"
    assert told == [None, SINCE._replace(reason=f"rank 0 of group draft: {SINCE.reason}"), None]
