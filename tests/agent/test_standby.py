"""An agent that waits for a plan: which plan it takes, how clients learn that, and why it waits no longer."""

from __future__ import annotations

import json
import os
import signal
import zlib
from typing import Any

import pytest
from ray_keys import Keys
from small_plans import small_plan

from fleetctl.agent import records, run_messages, standby
from fleetctl.agent.run_messages import EventStream, StandbyRequest
from fleetctl.apply.prepare import ApplyOptions, apply_request
from fleetctl.documents.plan import Plan

HASH, JOB = "a" * 64, "fleetctl-apply-00000000000a"
WAITING = StandbyRequest("lab", "fleet", HASH, JOB, "0.1.0")
PLAN = small_plan("a", "b")


class Ran(list[Any]):
    """The requests that were carried out."""


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, ran: Ran) -> Keys:
    monkeypatch.setattr(standby, "POLL_S", 0.001)
    monkeypatch.setattr(standby, "begin_run", lambda _: None)
    keys = Keys().install(monkeypatch, records, run_messages)
    info = {"status": "RUNNING", "start_time": 1, "entrypoint": "sh", "message": "it runs", "metadata": {
        "tool": "fleetctl", "verb": "standby", "agent": HASH, "fleet": "lab", "run": "the watch's CI"}}
    keys.put(f"{records.JOB_KEY}{JOB}".encode(), json.dumps(info).encode(), namespace=b"job")
    return keys


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    ran = Ran()

    def run_apply(request: Any, _: EventStream) -> int:
        ran.append(request)
        return 0

    monkeypatch.setattr(standby, "run_apply", run_apply)
    return ran


def row(keys: Keys) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(keys.get(f"{records.JOB_KEY}{JOB}".encode(), namespace=b"job") or b"null")
    return found


def put(keys: Keys, name: str, content: Any) -> None:
    keys.put(f"gcs://{JOB}-{name}".encode(), zlib.compress(json.dumps(content).encode()))


def handed(plan: Plan = PLAN, job: str = JOB, **more: Any) -> dict[str, Any]:
    """What a client hands over."""
    return {"ticket": "t", "agent": HASH, "metadata": {"verb": "apply", "planId": plan.plan_id, "who": "ann"},
            "request": apply_request(plan, job, "ann", ApplyOptions(), may_replan=False), **more}


def last(output: str) -> dict[str, Any]:
    """The summary; the log of an agent without a plan has only this line and the first."""
    first, summary = map(json.loads, output.splitlines())
    assert (first["type"], summary["type"]) == ("version", "runSummary")
    return dict(summary)


def test_it_carries_out_one_plan_and_its_row_says_whose(keys: Keys, ran: Ran) -> None:
    put(keys, "plan", handed())
    assert standby.run_standby(WAITING, EventStream()) == 0
    [request] = ran
    assert (request.plan.plan_id, request.job) == (PLAN.plan_id, JOB)
    written = row(keys)
    assert written["metadata"] == {"tool": "fleetctl", "verb": "apply", "agent": HASH, "planId": PLAN.plan_id,
                                   "who": "ann", "ticket": "t"}, "nothing of the watch's own is left"
    assert written["start_time"] > 1, "the run begins now"
    assert {key: written[key] for key in ("status", "entrypoint", "message")} == {
        "status": "RUNNING", "entrypoint": "sh", "message": "it runs"}
    assert keys.get(f"gcs://{JOB}-plan".encode()) is None, "a plan has secrets: it is removed once it is read"


def test_no_metadata_of_a_client_makes_it_another_programs_or_releases(keys: Keys, ran: Ran) -> None:
    put(keys, "plan", handed(metadata={"tool": "x", "agent": "y", "verb": "evict"}))
    standby.run_standby(WAITING, EventStream())
    assert (len(ran), row(keys)["metadata"]) == (1, {"tool": "fleetctl", "agent": HASH, "verb": "apply", "ticket": "t"})


def tampered() -> dict[str, Any]:
    found = handed()
    found["request"]["plan"]["actions"][0]["priority"] = 77
    return found


BAD = {
    "another release": (handed(agent="b" * 64), "another release"),
    "another agent": (handed(job="fleetctl-apply-00000000000b"), "another agent"),
    "another fleet": (handed(small_plan("a", namespace="other")), "another fleet"),
    "changed": (tampered(), "planId does not match"),
    "no request": ({**handed(), "request": 7}, "not read"),
    "no text": ({**handed(), "metadata": {"who": 7}}, "not read"),
    "half of a pair": ({**handed(), "request": {**handed()["request"], "plan": {
        **handed()["request"]["plan"], "toolVersion": "\ud800"}}}, ""),
    "a list": ([], "not read"),
    "too deep": (json.loads("[" * 900 + "]" * 900), ""),
}


@pytest.mark.parametrize(("content", "why"), BAD.values(), ids=BAD)
def test_a_plan_that_is_not_for_it_or_was_changed_ends_it(
    keys: Keys, ran: Ran, capsys: pytest.CaptureFixture[str], content: Any, why: str
) -> None:
    put(keys, "plan", content)
    assert standby.run_standby(WAITING, EventStream()) == 1
    said = last(capsys.readouterr().out)
    assert "the plan that was handed over is not carried out: " in said["message"]
    assert why in said["message"]
    assert "hush-hush" not in said["message"]
    assert (ran, row(keys)["metadata"]["verb"]) == ([], "standby")


@pytest.mark.parametrize("data", [b"", b"no zlib", zlib.compress(b"{")[:-3], zlib.compress(b"\xff"),
                                  zlib.compress(b"[" * 200_000), zlib.compress(b" " * 2_000_000)])
def test_what_is_no_document_ends_it_too(
    keys: Keys, ran: Ran, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(run_messages, "MAX_TEXT", 1_000_000)
    keys.put(f"gcs://{JOB}-plan".encode(), data)
    keys.put(f"gcs://{JOB}-watch".encode(), data)
    assert standby.run_standby(WAITING, EventStream()) == 1
    assert last(capsys.readouterr().out)["exitCode"] == 1
    assert ran == []


@pytest.mark.parametrize("status", sorted(records.ENDED))
def test_in_a_job_that_ray_has_ended_it_carries_out_nothing_although_it_still_lives(
    keys: Keys, ran: Ran, capsys: pytest.CaptureFixture[str], status: str
) -> None:
    ended = {**row(keys), "status": status}
    keys.put(f"{records.JOB_KEY}{JOB}".encode(), json.dumps(ended).encode(), namespace=b"job")
    put(keys, "plan", handed())
    assert standby.run_standby(WAITING, EventStream()) == 1
    assert "Ray has ended this job" in last(capsys.readouterr().out)["message"]
    assert (ran, row(keys)) == ([], ended), "the client gives the plan to another, as the row says that it may"


@pytest.mark.parametrize("by_ray", [{"status": "FAILED"}, {"metadata": {"tool": "fleetctl", "verb": "standby"}}])
def test_a_row_that_ray_writes_at_the_same_moment_says_that_nobody_has_the_plan(
    keys: Keys, ran: Ran, monkeypatch: pytest.MonkeyPatch, by_ray: dict[str, Any]
) -> None:
    put(keys, "plan", handed())

    def write(key: bytes, value: bytes, **more: Any) -> bool:
        return keys.put(key, json.dumps({**json.loads(value), **by_ray}).encode(), **more)

    monkeypatch.setattr(records, "_internal_kv_put", write)
    assert standby.run_standby(WAITING, EventStream()) == 1
    assert ran == []


def test_it_ends_when_its_watch_is_gone(
    keys: Keys, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "WATCH_GONE_S", 0.05)
    keys.put(f"gcs://{JOB}-watch".encode(), b"garbage")
    assert standby.run_standby(WAITING, EventStream()) == 0
    assert "its watch has been gone" in last(capsys.readouterr().out)["message"]


def test_it_ends_when_a_watch_of_another_release_begins(keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    put(keys, "watch", {"agent": "b" * 64})
    assert standby.run_standby(WAITING, EventStream()) == 0
    assert "another release" in last(capsys.readouterr().out)["message"]


def test_each_sign_of_its_watch_lets_it_wait_on(
    keys: Keys, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, signs, asked = [0.0], [0], list[str]()
    taken = standby.take_document

    def take(name: str) -> Any:
        asked.append(name)
        return taken(name)

    monkeypatch.setattr(standby, "take_document", take)
    monkeypatch.setattr(standby.time, "monotonic", lambda: now[0])

    class Stop:
        """Each pause is a second, and the watch writes once a minute, for an hour."""

        def wait(self, _: float) -> bool:
            now[0] += 1
            if now[0] % 60 == 0 and now[0] <= 3600:
                signs[0] += 1
                put(keys, "watch", {"agent": HASH})
            return False

        def set(self) -> None:
            return

    monkeypatch.setattr(standby.threading, "Event", Stop)
    assert standby.run_standby(WAITING, EventStream()) == 0
    assert 3900 <= now[0] <= 3911
    assert (signs, ran) == ([60], [])
    assert asked.count(f"{JOB}-plan") == now[0]
    assert asked.count(f"{JOB}-watch") == pytest.approx(now[0] / 10, abs=1), "each question is work for Ray"


def test_it_can_be_stopped_and_afterwards_the_signal_is_the_runs_own(
    keys: Keys, ran: Ran, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    former = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(standby, "take_document", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert standby.run_standby(WAITING, EventStream()) == 0
    assert last(capsys.readouterr().out)["message"] == "it was stopped; no plan came"
    assert (signal.getsignal(signal.SIGTERM), ran) == (former, [])
