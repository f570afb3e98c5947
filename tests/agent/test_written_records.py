"""Records: the newest about a subject counts, no writer loses another's, and a row stays small."""

from __future__ import annotations

import importlib
import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from ray_keys import Keys

from fleetctl.agent import lock, records, run_messages
from fleetctl.agent.cluster import GONE, ActorRecord
from fleetctl.agent.run import WORKER
from fleetctl.agent.run_messages import Holder

JOBS = b"job"
UP = ActorRecord("ALIVE", True, "{}", "")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    monkeypatch.setattr(records, "ray", SimpleNamespace(
        get_runtime_context=lambda: SimpleNamespace(get_job_id=lambda: "2c010000")))
    monkeypatch.setattr(records.cluster, "alive_nodes", lambda: {"n1": {}})
    monkeypatch.setattr(records.cluster, "actor_record", lambda actor: UP if actor == "up" else GONE)
    return Keys().install(monkeypatch, lock, records)


def row(keys: Keys, name: str) -> dict[str, Any]:
    """A row as the dashboard reads it."""
    packed = keys.get(f"{records.JOB_KEY}fleetctl.records.{name}".encode(), namespace=JOBS)
    found: dict[str, Any] = json.loads(packed or b"null")
    return found


def in_row(keys: Keys, name: str) -> dict[str, Any]:
    return {one["subject"]: one["payload"] for one in json.loads(row(keys, name)["metadata"]["records"])}


def add_job(
    keys: Keys, job: str, status: str = "SUCCEEDED", start_time: int = 1_772_625_600_123, **metadata: str
) -> None:
    info = {"status": status, "start_time": start_time, "metadata": {"tool": "fleetctl", **metadata}}
    keys.put(f"{records.JOB_KEY}{job}".encode(), json.dumps(info).encode(), namespace=JOBS)


def test_a_row_is_an_ended_job_that_no_release_takes_for_a_run(keys: Keys) -> None:
    assert records.add("cordon", "n1", {"verb": "cordon", "reason": "é"})
    found = row(keys, "cordon")
    assert (found["status"], found["metadata"]["tool"], found["metadata"]["version"]) == (
        "SUCCEEDED", "fleetctl-records", "1.0")
    [one] = json.loads(found["metadata"]["records"])
    assert (one["subject"], one["payload"]) == ("n1", {"verb": "cordon", "reason": "é"})
    assert one["at"].endswith("Z")
    assert all(isinstance(value, str) for value in found["metadata"].values()), "Ray accepts only text"


def test_the_newest_record_about_a_subject_replaces_the_former(keys: Keys) -> None:
    for spec in ("old", "new"):
        assert records.add("reload", "a/j", {"specHash": spec}, "lab")
    assert records.add("reload", "b/j", {}, "lab")
    assert in_row(keys, "reload.lab") == {"a/j": {"specHash": "new"}, "b/j": {}}
    assert records.remove("reload", "b/j", "lab")
    assert in_row(keys, "reload.lab") == {"a/j": {"specHash": "new"}}
    versions = [key for _, key in keys.table if key.startswith(b"records:fleetctl.records.reload")]
    assert len(versions) == 1, "former versions are deleted"


def test_the_row_of_runs_names_all_rows_and_counts_the_table(keys: Keys) -> None:
    add_job(keys, "raysubmit_1")
    add_job(keys, "fleetctl-apply-8dd5457ba23d")
    records.add("draining", "n1", {})
    records.add("reload", "a/j", {}, "lab")
    found = row(keys, "run")["metadata"]
    assert json.loads(found["rows"]) == [f"fleetctl.records.{kind}" for kind in ("draining", "reload.lab", "run")]
    assert (found["jobs"], found["runs"], found["drivers"]) == ("5", "1", "300")


def test_writers_at_the_same_time_lose_no_record(keys: Keys) -> None:
    def write(number: int) -> None:
        for subject in range(10):
            assert records.add("draining", f"{number}-{subject}", {})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(in_row(keys, "draining")) == 60


def test_a_writer_that_was_suspended_neither_loses_records_nor_brings_old_ones_back(
        keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    records.add("draining", "first", {})

    def edit_late(found: records.Records) -> records.Records:
        if "second" not in found:
            for subject in ("second", "third"):  # the number of this writer exists and is deleted meanwhile
                records.add("draining", subject, {})
        return {**found, "late": records.Record("late", "2026-03-04T12:00:00.000Z", {})}

    assert records.change("draining", edit_late)
    assert set(in_row(keys, "draining")) == {"first", "second", "third", "late"}


def test_a_row_that_is_published_late_is_published_again(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    put, raced = keys.put, []

    def overtaken(key: bytes, value: bytes, overwrite: bool = True, *, namespace: bytes | None = None) -> bool:
        if namespace == JOBS and key.endswith(b".draining") and not raced:
            raced.append(key)
            records.add("draining", "faster", {})
        return put(key, value, overwrite, namespace=namespace)

    monkeypatch.setattr(records, "_internal_kv_put", overtaken)
    records.add("draining", "slower", {})
    assert set(in_row(keys, "draining")) == {"slower", "faster"}


def test_a_deleted_row_comes_back_whole_with_the_next_record(keys: Keys) -> None:
    records.add("draining", "n1", {})
    keys.delete(f"{records.JOB_KEY}fleetctl.records.draining".encode(), namespace=JOBS)
    records.add("draining", "n2", {})
    assert set(in_row(keys, "draining")) == {"n1", "n2"}


def test_a_record_that_cannot_be_written_is_no_error(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> bool:
        raise ConnectionError

    monkeypatch.setattr(lock, "_internal_kv_put", fail)
    assert not records.add("draining", "n1", {})
    records.begin_run("j")
    records.end_run("j")


def test_a_full_row_drops_what_is_gone_before_what_is_old(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "KEPT", 2)
    for subject in ("up/1", "gone/2", "up/3"):
        records.add("reload", subject, {}, "lab")
    assert set(in_row(keys, "reload.lab")) == {"up/1", "up/3"}
    records.add("reload", "up/4", {}, "lab")
    assert set(in_row(keys, "reload.lab")) == {"up/3", "up/4"}
    for subject in ("n1", "n2", "n3"):
        records.add("draining", subject, {})
    assert set(in_row(keys, "draining")) == {"n1", "n3"}


def test_a_row_has_at_most_so_many_bytes(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_BYTES", 300)
    for number in range(9):
        records.add("cordon", f"n{number}", {"reason": "x" * 50})
    assert set(in_row(keys, "cordon")) == {"n1", "n8"}, "n1 is the node that exists"


def test_a_run_is_recorded_with_its_driver_until_its_end(keys: Keys) -> None:
    add_job(keys, "fleetctl-evict-1", "RUNNING", verb="evict", fleet="lab", replicas='["m/0"]', secret="x",
            variants='{"m/0": "a100"}')
    records.begin_run("fleetctl-evict-1")
    records.mark_ending("fleetctl-evict-1", ["m/0"])
    assert in_row(keys, "run") == {"fleetctl-evict-1": {
        "verb": "evict", "fleet": "lab", "replicas": '["m/0"]', "driver": "2c010000", "ending": '["m/0"]',
        "variants": '{"m/0": "a100"}'}}
    assert json.loads(row(keys, "run")["metadata"]["records"])[0]["at"] == "2026-03-04T12:00:00.123Z"
    records.end_run("fleetctl-evict-1")
    assert in_row(keys, "run") == {"fleetctl-evict-1": {
        "verb": "evict", "fleet": "lab", "driver": "2c010000", "ended": True, "variants": '{"m/0": "a100"}'}}


def test_a_run_that_was_killed_is_recorded_as_ended_by_the_next_one(keys: Keys) -> None:
    for number in range(3):
        add_job(keys, f"fleetctl-apply-{number}", "RUNNING", verb="apply")
        records.begin_run(f"fleetctl-apply-{number}")
    add_job(keys, "fleetctl-apply-1", "FAILED", verb="apply")
    keys.delete(f"{records.JOB_KEY}fleetctl-apply-2".encode(), namespace=JOBS)
    add_job(keys, "fleetctl-apply-3", "RUNNING", verb="apply")
    records.begin_run("fleetctl-apply-3")
    assert {name[-1]: one.get("ended", False) for name, one in in_row(keys, "run").items()} == {
        "0": False, "1": True, "2": True, "3": False}


def test_what_was_sent_to_runs_that_have_ended_goes_with_the_next_run(keys: Keys) -> None:
    """It has env values, and its client may have been killed."""
    def sent(job: str, what: str) -> bytes:
        key = f"gcs://fleetctl-{job}-{what}".encode()
        keys.put(key, b"secret")
        return key

    add_job(keys, "fleetctl-apply-0000000000ab", "RUNNING", verb="standby")
    add_job(keys, "fleetctl-apply-0000000000cd", "STOPPED", verb="standby")
    add_job(keys, "fleetctl-evict-0000000000ef", "FAILED", verb="evict")
    keys.put(f"{records.JOB_KEY}fleetctl-apply-0000000000dd".encode(), b"[]", namespace=JOBS)
    stay = [sent("apply-0000000000ab", what) for what in ("request", "plan", "watch", "replan-0")]
    stay += [sent("apply-0000000000cd", "of another"), sent("x", "plan"), sent("apply-0000000000dd", "plan")]
    keys.put(b"gcs://_ray_pkg_00.zip", b"zip")
    begins = sent("apply-000000000000", "request")
    gone = [sent("apply-0000000000cd", what) for what in ("plan", "watch", "replan-0", "replan-11")]
    gone += [sent("evict-0000000000ef", "request"), sent("apply-0000000000ee", "plan")]
    records.begin_run("fleetctl-apply-0000000000ff")
    assert [key for key in gone if keys.get(key)] == []
    assert all(keys.get(key) for key in (*stay, begins, b"gcs://_ray_pkg_00.zip"))
    assert keys.pinned == {begins.decode(): 600}, "its job may be about to be submitted; Ray deletes it later"


def test_of_the_runs_the_newest_stay_and_those_that_run(
        keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "KEPT_RUNS", 2)
    for number in range(6):
        job = f"fleetctl-apply-{number}"
        add_job(keys, job, "RUNNING", 1_772_625_600_000 + number, verb="apply")
        records.begin_run(job)
        if number != 2:
            records.end_run(job)
    assert [name[-1] for name in in_row(keys, "run")] == ["2", "4", "5"]


def test_the_first_run_makes_records_of_the_notes_of_earlier_releases(keys: Keys) -> None:
    reload = {"model": "m", "actorId": "up", "specHash": "s", "at": "2026-03-04T12:00:00Z"}
    add_job(keys, "fleetctl-cordon-1", verb="cordon", node="n1", nodeName="a", who="ana")
    add_job(keys, "fleetctl-uncordon-2", start_time=1_772_625_600_124, verb="uncordon", node="n1", nodeName="a")
    add_job(keys, "fleetctl-slots-3", verb="slots", node="n1", slots="4")
    add_job(keys, "fleetctl-apply-4", verb="apply", fleet="lab", namespace="fleet", draining="n1 n2",
            reloads=json.dumps([reload]), unfetched=json.dumps([{"nodeId": "n1", "artifact": "a"}]))
    add_job(keys, "fleetctl-evict-5", "RUNNING", verb="evict", fleet="lab", replicas='["m/0"]')
    for job, damage in (("fleetctl-apply-6", {"reloads": "[7]"}), ("fleetctl-apply-7", {"unfetched": "no JSON"})):
        add_job(keys, job, verb="apply", fleet="lab", namespace="fleet", **damage)
    keys.put(f"{records.JOB_KEY}fleetctl-apply-8".encode(), b"[]", namespace=JOBS)
    add_job(keys, "raysubmit_1", verb="cordon", node="n9")
    add_job(keys, "fleetctl-apply-9", "RUNNING", verb="apply", fleet="lab")
    records.begin_run("fleetctl-apply-9")
    assert in_row(keys, "cordon")["n1"]["verb"] == "uncordon"
    assert set(in_row(keys, "cordon")) == {"n1"}
    assert in_row(keys, "slots")["n1"]["slots"] == "4"
    assert set(in_row(keys, "draining")) == {"n1", "n2"}
    assert in_row(keys, "reload.lab") == {"up/fleetctl-apply-4": {**reload, "fleet": "lab", "namespace": "fleet"}}
    assert set(in_row(keys, "unfetched.lab")) == {"n1/a"}
    runs = in_row(keys, "run")
    assert {name[-1] for name, one in runs.items() if not one.get("ended")} == {"5", "9"}
    assert runs["fleetctl-evict-5"]["replicas"] == '["m/0"]'

    add_job(keys, "fleetctl-cordon-x", verb="cordon", node="n2")
    records.begin_run("fleetctl-apply-9")
    assert set(in_row(keys, "cordon")) == {"n1"}, "they are read once"


def test_a_first_run_that_was_killed_is_made_up_for_by_the_next(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    add_job(keys, "fleetctl-cordon-1", verb="cordon", node="n1")
    add_job(keys, "fleetctl-slots-2", verb="slots", node="n1", slots="4")
    put = keys.put

    def killed(key: bytes, value: bytes, overwrite: bool = True, *, namespace: bytes | None = None) -> bool:
        if b"slots" in key:
            raise SystemExit
        return put(key, value, overwrite, namespace=namespace)

    with monkeypatch.context() as patch:
        patch.setattr(lock, "_internal_kv_put", killed)
        with pytest.raises(SystemExit):
            records.begin_run("fleetctl-apply-3")
    assert set(in_row(keys, "cordon")) == {"n1"}
    records.begin_run("fleetctl-apply-3")
    assert set(in_row(keys, "slots")) == {"n1"}


def test_notes_of_earlier_releases_that_could_not_be_written_are_made_up_for_by_the_next_run(
        keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    add_job(keys, "fleetctl-apply-0", verb="apply", fleet="lab", reloads="[" * 100_000)
    add_job(keys, "fleetctl-apply-1", start_time=10 ** 30, verb="apply", fleet="lab")
    add_job(keys, "fleetctl-cordon-2", verb="cordon", node="n1")
    change = records.change

    def failing(kind: str, *rest: Any) -> bool:
        return kind != "cordon" and change(kind, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(records, "change", failing)
        records.adopt_old_notes()
    records.adopt_old_notes()
    assert set(in_row(keys, "cordon")) == {"n1"}


def test_a_run_is_recorded_even_if_notes_of_earlier_releases_cannot_be_read(
        keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    add_job(keys, "fleetctl-evict-1", "RUNNING", verb="evict", fleet="lab")
    monkeypatch.setattr(records, "_old_records", lambda *_: (_ for _ in ()).throw(ConnectionError()))
    records.begin_run("fleetctl-evict-1")
    assert set(in_row(keys, "run")) == {"fleetctl-evict-1"}


def test_a_users_note_becomes_a_record_or_an_error(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    request = records.NoteRequest("slots", "n1", {"slots": "4"}, "j")
    monkeypatch.setattr(run_messages, "ray", SimpleNamespace(__version__="2.60.0"))
    assert records.run_note(request, run_messages.EventStream()) == 0
    assert in_row(keys, "slots") == {"n1": {"slots": "4"}}
    monkeypatch.setattr(lock, "_internal_kv_put", lambda *_, **__: True)
    monkeypatch.setattr(records, "TRIES", 1)
    assert records.run_note(request, run_messages.EventStream()) == 1


def pause(subject: str = "s", **note: str) -> None:
    assert records.add("pause", subject, {"verb": "pause", "fleet": "lab", "namespace": "fleet", **note})


@pytest.mark.parametrize(("note", "why"), [
    ({"model": "m", "who": "ana", "reason": "bad answers"}, "paused by ana: bad answers"),
    ({"model": "m", "until": "2999-01-01T00:00:00Z"}, "paused, until 2999-01-01T00:00:00Z"),
    ({"who": "ana"}, "fleet lab is paused by ana"),
    ({"model": "m", "until": "2026-01-01T00:00:00Z"}, ""),
    ({"model": "m/0"}, ""), ({"fleet": "prod"}, ""), ({"namespace": "other"}, ""), ({"verb": "resume"}, "")],
    ids=["model", "with an end", "fleet", "ended", "another model", "another fleet", "another namespace", "resumed"])
def test_a_pause_holds_its_model_or_fleet_until_its_end(keys: Keys, note: dict[str, str], why: str) -> None:
    pause(**note)
    assert records.why_paused("lab", "fleet", "m") == why


def test_nothing_is_paused_before_the_first_pause(keys: Keys) -> None:
    assert records.why_paused("lab", "fleet", "m") == ""


def test_the_pause_of_a_fleet_and_that_of_a_model_end_apart(keys: Keys) -> None:
    pause("fleet")
    pause("model", model="m")
    assert records.why_paused("lab", "fleet", "m") == "fleet lab is paused"
    pause("fleet", verb="resume")
    assert records.why_paused("lab", "fleet", "m") == "paused"
    assert records.why_paused("lab", "fleet", "n") == ""


def test_pauses_that_hold_stay_when_a_row_is_too_long(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "KEPT", 2)
    pause("holds", model="m")
    pause("resumed", verb="resume")
    pause("over", until="2026-01-01T00:00:00Z")
    pause("newest", model="n")
    assert set(in_row(keys, "pause")) == {"holds", "newest"}


@pytest.mark.parametrize(("verb", "steps"), [
    ("evict", ["begin j", "evict", "end j"]), ("examine", ["examine"]), ("cordon", ["cordon"])])
def test_a_run_that_may_create_or_end_something_is_recorded_around_its_work(
        monkeypatch: pytest.MonkeyPatch, verb: str, steps: list[str]) -> None:
    agent, taken = importlib.import_module("fleetctl.agent.__main__"), list[str]()
    for name in ("begin", "end"):
        monkeypatch.setattr(agent, f"{name}_run", lambda job, name=name: taken.append(f"{name} {job}"))
    monkeypatch.setattr(agent.ray, "init", lambda **_: None)
    monkeypatch.setattr(agent, "hide_package_from_actors", lambda: None)
    monkeypatch.setattr(agent, "wait_for_document", lambda *_: {"job": "j"})
    monkeypatch.setattr(agent, "VERBS", {verb: (Holder, lambda *_: taken.append(verb) or 3)})
    monkeypatch.setattr("sys.argv", ["agent", verb, "name", "namespace"])
    assert agent.main() == 3
    assert taken == steps


def test_a_run_whose_work_hangs_ends_with_its_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, over, taken = importlib.import_module("fleetctl.agent.__main__"), threading.Event(), list[str]()
    monkeypatch.setattr(agent, "begin_run", taken.append)
    monkeypatch.setattr(agent, "end_run", lambda _: taken.append("it may act meanwhile"))
    monkeypatch.setattr(agent.ray, "init", lambda **_: None)
    monkeypatch.setattr(agent, "hide_package_from_actors", lambda: None)
    monkeypatch.setattr(agent, "wait_for_document", lambda *_: {"job": "j"})
    hangs = threading.Thread(target=over.wait, args=(60,), name=WORKER, daemon=True)
    monkeypatch.setattr(agent, "VERBS", {"apply": (Holder, lambda *_: hangs.start() or 3)})
    monkeypatch.setattr("sys.argv", ["agent", "apply", "name", "namespace"])
    try:
        assert agent.main() == 3
    finally:
        over.set()
    assert taken == ["j"]


def test_a_row_that_someone_has_deleted_is_restored_by_the_next_run(keys: Keys) -> None:
    records.add("cordon", "n1", {"verb": "cordon"})
    keys.delete(f"{records.JOB_KEY}fleetctl.records.cordon".encode(), namespace=JOBS)
    add_job(keys, "fleetctl-apply-8dd5457ba23d", status="RUNNING", verb="apply")
    records.begin_run("fleetctl-apply-8dd5457ba23d")
    assert in_row(keys, "cordon") == {"n1": {"verb": "cordon"}}
    assert "fleetctl.records.cordon" in row(keys, "run")["metadata"]["rows"]


def test_old_notes_that_could_not_be_written_are_adopted_by_the_next_run(
        keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    add_job(keys, "fleetctl-cordon-8dd5457ba23d", verb="cordon", node="n1")
    with monkeypatch.context() as patched:
        patched.setattr(records, "change", lambda *_: False)
        records.adopt_old_notes()
    records.adopt_old_notes()
    assert in_row(keys, "cordon")["n1"]["node"] == "n1"


def test_a_made_up_job_ends_no_adoption(keys: Keys) -> None:
    add_job(keys, "fleetctl-x", verb="apply", fleet="lab", reloads="[" * 99_999)
    add_job(keys, "fleetctl-y", start_time=10 ** 30, verb="cordon", node="n2")
    add_job(keys, "fleetctl-cordon-8dd5457ba23d", verb="cordon", node="n1")
    records.adopt_old_notes()
    assert in_row(keys, "cordon")["n1"]["node"] == "n1"


def test_a_cordon_of_a_machine_that_came_back_with_another_id_outlasts_uncordons(
        keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "KEPT", 2)
    records.add("cordon", "gone", {"verb": "cordon", "nodeName": "host-a"})
    for node in ("n1", "n2"):  # n1 is the node that exists
        records.add("cordon", node, {"verb": "uncordon"})
    assert set(in_row(keys, "cordon")) == {"gone", "n1"}
