"""The history: how a run ended according to its job and log, which run an id selects, and which logs are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, StoredJob, event, ready, summary

from fleetctl.agent.messages import FailedStart
from fleetctl.agent.report import encode_failure, utc_now
from fleetctl.apply.history import pick, read_history, read_log, read_run, runs_of, status_of
from fleetctl.documents.events import HistoryEntry
from fleetctl.errors import ApplyError, ClusterRefused, InventoryError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import Job, list_jobs

VERSION = event(0, "version", "fleetctl agent", version="1.0")
LOCKED = event(1, "lockAcquired", "lock of fleet lab acquired")
STARTED = VERSION + LOCKED
CREATED = event(2, "replicaCreated", "m/0: created on a", model="m", replicaId=0, nodes=["a"])
READY = event(3, "replicaReady", "m/0: ready on a", model="m", replicaId=0, nodes=["a"], outcome="ready", seconds=1.5)
FAILED = {"model": "m", "replicaId": 1, "outcome": "failed", "nodes": ["a"], "message": "no", "code": "ENGINE_EXITED"}
SKIPPED = {"model": "m", "replicaId": 1, "outcome": "skipped", "nodes": [], "message": "", "code": "TARGET_REACHED"}
KILLED = ("Job entrypoint command failed with exit code -9, last available logs (truncated to 20,000 chars):\n"
          "something it wrote")


def add_run(cluster: ClusterStandIn, log: str, status: str = "FAILED", *, verb: str = "apply", name: str = "j",
            message: str = "", **metadata: str) -> StoredJob:
    job = cluster.add_job(name, verb=verb, fleet="lab", **metadata)
    job.status, job.log, job.message, job.steps = status, log, message, []
    return job


def only_entry(client: DashboardClient) -> HistoryEntry:
    [entry] = read_history(client, None, 20).runs
    return entry


@pytest.mark.parametrize(("log", "status", "state", "code"), [
    (STARTED + summary(2, ready("m", 0)), "SUCCEEDED", "ok", None),
    (STARTED + summary(2, ready("m", 0), SKIPPED, code=3), "FAILED", "ok", None),
    (STARTED + summary(2, ready("m", 0), FAILED, code=3), "FAILED", "partial", None),
    (STARTED + summary(2, ready("m", 0), FAILED, code=3, interrupted=True), "STOPPED", "partial", "INTERRUPTED"),
    (VERSION + summary(1, code=5, message="the lock is held"), "FAILED", "refused", "LOCK_HELD"),
    (VERSION + summary(1, code=6, message="already applied"), "FAILED", "refused", "PLAN_USED"),
    (summary(0, code=1, message="no Python interpreter with ray"), "FAILED", "refused", "NOT_BEGUN"),
    (VERSION + summary(1, code=3, interrupted=True, message="interrupted before"), "STOPPED", "refused", "INTERRUPTED"),
    (STARTED + CREATED, "FAILED", "unknown", "DIED"),
    (STARTED, "STOPPED", "unknown", "INTERRUPTED"),
    (VERSION, "FAILED", "refused", "NOT_BEGUN"),
    ("", "FAILED", "unknown", "LOG_GONE"),
    ("", "SUCCEEDED", "unknown", "LOG_GONE"),
    ("", "STOPPED", "unknown", "INTERRUPTED"),
    ("", "PENDING", "running", None),
    ("", "RUNNING", "running", None),
    (VERSION + event(1, "lockWaiting", "held"), "RUNNING", "running", "WAITING"),
    (STARTED + CREATED, "RUNNING", "running", None),
])
def test_how_an_apply_ended(
    cluster: ClusterStandIn, client: DashboardClient, log: str, status: str, state: str, code: str | None
) -> None:
    add_run(cluster, log, status)
    assert (only_entry(client).state, only_entry(client).code) == (state, code)


@pytest.mark.parametrize(("log", "state", "code"), [
    (VERSION + event(1, "replicaEnding") + summary(2, message="it is gone"), "ok", None),
    (VERSION + summary(1, code=1, message="there is no such actor"), "refused", "NOT_BEGUN"),
    (VERSION + event(1, "replicaEnding") + summary(2, code=1, message="it still exists"), "partial", None),
    (VERSION + summary(1, code=5, message="the lock is held"), "refused", "LOCK_HELD"),
    (VERSION + event(1, "replicaEnding"), "unknown", "DIED"),
    (VERSION, "refused", "NOT_BEGUN"),
])
def test_how_an_eviction_ended(
    cluster: ClusterStandIn, client: DashboardClient, log: str, state: str, code: str | None
) -> None:
    add_run(cluster, log, verb="evict", replica="m/1")
    assert (only_entry(client).state, only_entry(client).code, only_entry(client).replica) == (state, code, "m/1")


def test_a_run_that_died_has_rays_reason_without_the_quoted_log(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    add_run(cluster, STARTED + CREATED, message=KILLED)
    assert only_entry(client).message == (
        "it ended without a summary (FAILED: Job entrypoint command failed with exit code -9)")


def test_a_run_that_died_has_the_outcomes_it_had_reported(cluster: ClusterStandIn, client: DashboardClient) -> None:
    second = CREATED.replace('"replicaId":0', '"replicaId":1')
    add_run(cluster, STARTED + CREATED + READY + second)
    run = read_run(client, "j", None)
    assert [(row.replica_id, row.outcome, row.code) for row in run.outcomes] == [
        (0, "ready", None), (1, "starting", "NOT_REPORTED")]
    assert run.counts == {"ready": 1, "starting": 1}


def test_a_running_run_shows_its_progress(cluster: ClusterStandIn, client: DashboardClient) -> None:
    log = STARTED + CREATED + READY + CREATED.replace('"replicaId":0', '"replicaId":1')
    add_run(cluster, log, "RUNNING", create="7")
    assert only_entry(client).message == "1 of 7 done"


def test_a_log_that_cannot_be_served_is_reported(cluster: ClusterStandIn, client: DashboardClient) -> None:
    add_run(cluster, STARTED + summary(2, ready("m", 0)), "SUCCEEDED")
    cluster.refusals["GET", "/api/jobs/j/logs"] = [(500, "the node is dead")]
    assert only_entry(client).message == "its log is gone: the cluster cannot serve it (SUCCEEDED)"
    cluster.refusals["GET", "/api/jobs/j/logs"] = [(403, "no")]
    assert "could not be read" in only_entry(client).message


def test_if_the_log_is_gone_the_end_of_it_that_ray_keeps_is_used(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    add_run(cluster, "", message=KILLED + "\n" + summary(9, ready("m", 0), FAILED, code=3))
    assert only_entry(client).state == "partial"


def test_the_end_of_a_log_does_not_prove_that_no_replica_was_created(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    add_run(cluster, "", message=KILLED + "\n" + event(9, "progress", "1 of 3 done"))
    assert (only_entry(client).state, only_entry(client).code) == ("unknown", "DIED")


def test_an_entry_says_what_its_job_says_whoever_submitted_it(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    said = {"who": "ann@laptop", "commit": "c" * 40, "command": "deploy", "planId": "d" * 64, "agent": "e" * 64}
    answer = client.request("POST", "/api/jobs/", json={  # with nothing of fleetctl
        "submission_id": "raysubmit_1", "entrypoint": "true",
        "metadata": {"tool": "fleetctl", "verb": "apply", "fleet": "lab", **said}})
    assert answer.status_code == 200
    entry = only_entry(client)
    assert {name: getattr(entry, field) for name, field in zip(
        said, ("who", "commit", "command", "plan_id", "agent"), strict=True)} == said


def test_a_run_of_an_unknown_verb_never_counts_as_idle(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    add_run(cluster, VERSION, verb="resize")
    assert (only_entry(client).verb, only_entry(client).state) == ("resize", "unknown")


def test_a_job_that_ray_never_started_did_nothing(cluster: ClusterStandIn, client: DashboardClient) -> None:
    add_run(cluster, "", message="no node for it").error_type = "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"
    assert (only_entry(client).state, only_entry(client).code) == ("refused", "NOT_BEGUN")
    assert "no node for it" in only_entry(client).message


@pytest.mark.parametrize("noise", [
    "Traceback (most recent call last):\n", "{not json}\n", '{"type":"runSummary"}\n', "[1]\n", "\u2028\n",
    event(2, "replicaReady", "x", outcome="levitating", model=3),
])
def test_other_lines_in_the_log_change_nothing(
    cluster: ClusterStandIn, client: DashboardClient, noise: str
) -> None:
    add_run(cluster, noise + STARTED + noise + summary(2, ready("m", 0)) + noise, "SUCCEEDED")
    assert (only_entry(client).state, only_entry(client).counts) == ("ok", {"ready": 1})


def test_user_time_and_source_come_from_the_jobs_metadata(cluster: ClusterStandIn, client: DashboardClient) -> None:
    job = add_run(cluster, STARTED, "RUNNING", who="ann", run="https://ci.example.com/1", planId="ab", commit="c0",
                  dirty="true", branch="main", toolVersion="1.2", create="12")
    job.start_time, job.end_time = 1_772_625_600_000, 1_772_625_609_500
    entry = only_entry(client)
    assert (entry.started_at, entry.ended_at, entry.seconds) == ("2026-03-04T12:00:00Z", "2026-03-04T12:00:09Z", 9.5)
    assert (entry.who, entry.run, entry.plan_id, entry.commit, entry.dirty, entry.branch, entry.tool_version,
            entry.create) == ("ann", "https://ci.example.com/1", "ab", "c0", True, "main", "1.2", 12)


@pytest.mark.parametrize(("last_word", "ended_at", "seconds"), [
    ("2026-03-04T12:00:07.900Z", "2026-03-04T12:00:07Z", 7.0), ("2026-03-04T11:59:59Z", "2026-03-04T12:00:00Z", 0.0),
    ("", None, None), ("then", None, None), ("2026-03-04T12:00:07", None, None),
])
def test_a_run_whose_end_ray_has_not_noticed_ended_with_its_summary(
    cluster: ClusterStandIn, client: DashboardClient, last_word: str, ended_at: str | None, seconds: float | None
) -> None:
    log = STARTED + summary(2, ready("m", 0)).replace("2026-03-04T12:00:00.000Z", last_word)
    add_run(cluster, log, "RUNNING").start_time = 1_772_625_600_000
    entry = only_entry(client)
    assert (entry.state, entry.ended_at, entry.seconds) == ("ok", ended_at, seconds)


@pytest.mark.parametrize("metadata", [
    {}, {"create": "many"}, {"create": "9" * 99}, {"dirty": "perhaps"}, {"create": "²"}, {"create": ""},
])
def test_missing_metadata_is_not_invented(
    cluster: ClusterStandIn, client: DashboardClient, metadata: dict[str, str]
) -> None:
    add_run(cluster, STARTED, "RUNNING", **metadata).start_time = 0
    entry = only_entry(client)
    assert (entry.who, entry.create, entry.dirty, entry.started_at, entry.seconds) == (None, None, None, None, None)


def test_the_newest_runs_come_first_and_only_their_logs_are_read(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    for number in range(1, 31):
        add_run(cluster, STARTED + summary(2), "SUCCEEDED", name=f"j{number}").start_time = number
    add_run(cluster, STARTED, name="theirs").body["metadata"]["fleet"] = "other"
    history = read_history(client, "lab", 3)
    assert ([run.id for run in history.runs], history.total) == (["j30", "j29", "j28"], 30)
    read = [path for _, path in cluster.requests if path.endswith("/logs")]
    assert sorted(read) == ["/api/jobs/j28/logs", "/api/jobs/j29/logs", "/api/jobs/j30/logs"]
    assert cluster.writes() == []


def test_a_list_that_cannot_be_read_is_an_error(cluster: ClusterStandIn, client: DashboardClient) -> None:
    cluster.refusals["GET", "/api/jobs/"] = [(500, "no"), *[(200, "<html>")] * 3, (401, "no")]
    with pytest.raises(InventoryError, match="/api/jobs/ answered 500: no"):
        read_history(client, None, 3)
    with pytest.raises(InventoryError):
        read_history(client, None, 3)
    with pytest.raises(ClusterRefused):
        read_history(client, None, 3)


RUNS = {"fleetctl-apply-aa11": "plan-one", "fleetctl-apply-aa22": "plan-two", "fleetctl-evict-bb11": ""}


def some_runs(cluster: ClusterStandIn) -> None:
    for number, (name, plan) in enumerate(RUNS.items()):
        add_run(cluster, STARTED, name=name, planId=plan).start_time = number + 1


@pytest.mark.parametrize(("wanted", "found"), [
    ("fleetctl-apply-aa11", "fleetctl-apply-aa11"), ("aa11", "fleetctl-apply-aa11"), ("b", "fleetctl-evict-bb11"),
    ("plan-two", "fleetctl-apply-aa22"), ("plan-o", "fleetctl-apply-aa11"), ("latest", "fleetctl-evict-bb11"),
    ("fleetctl-evict", "fleetctl-evict-bb11"),
])
def test_a_unique_prefix_of_an_id_selects_a_run(
    cluster: ClusterStandIn, client: DashboardClient, wanted: str, found: str
) -> None:
    some_runs(cluster)
    assert pick(runs_of(client, None), wanted).submission_id == found


@pytest.mark.parametrize("wanted", ["aa", "plan-", "fleetctl-", ""])
def test_an_ambiguous_prefix_lists_the_runs(cluster: ClusterStandIn, client: DashboardClient, wanted: str) -> None:
    some_runs(cluster)
    with pytest.raises(ApplyError, match=r"fleetctl-apply-aa22, fleetctl-apply-aa11"):
        read_run(client, wanted, None)


@pytest.mark.parametrize("wanted", ["latest", "cc", "11"])
def test_an_unknown_run_is_an_error(cluster: ClusterStandIn, client: DashboardClient, wanted: str) -> None:
    if wanted != "latest":
        some_runs(cluster)
    with pytest.raises(ApplyError, match="no such run"):
        read_run(client, wanted, None)


def test_a_complete_id_is_preferred_to_a_longer_id(cluster: ClusterStandIn, client: DashboardClient) -> None:
    add_run(cluster, STARTED, name="fleetctl-apply-a")
    add_run(cluster, STARTED, name="fleetctl-apply-ab")
    assert read_run(client, "fleetctl-apply-a", None).id == "fleetctl-apply-a"


def test_a_log_cut_off_anywhere_yields_only_what_it_proves() -> None:
    """Every prefix of a complete log, as an agent leaves it that is killed at any moment."""
    log = STARTED + CREATED + READY + summary(4, ready("m", 0))
    seen = set()
    for length in range(len(log)):
        text = log[:length]
        job = Job("j", "FAILED", {"verb": "apply"})
        verdict = status_of(job, read_log(text, job))
        holds = LOCKED.rstrip() in text
        begun = VERSION.rstrip() in text
        last = summary(4, ready("m", 0)).rstrip() in text
        expected = "ok" if last else "unknown" if holds or not begun else "refused"
        assert verdict.state == expected, text
        seen.add((verdict.state, verdict.code))
    assert seen == {("ok", None), ("unknown", "DIED"), ("refused", "NOT_BEGUN"), ("unknown", "LOG_GONE")}


def test_a_job_whose_record_is_not_as_ray_writes_it_has_no_times(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    odd: Any = "soon"
    cluster.add_job("j", ("RUNNING", ""), start_time=odd, verb="apply", fleet="lab")
    assert [(job.submission_id, job.start_time_ms) for job in list_jobs(client)] == [("j", 0)]


BEGAN = STARTED + CREATED
LEFT = {"model": "m", "replicaId": 0, "outcome": "starting", "nodes": ["a"], "message": ""}
NOT_WAITED = BEGAN + summary(3, LEFT, waited=False, message="0 of 1 ready")
UP_LATER = "2026-03-04T12:00:31Z"


def an_actor(cluster: ClusterStandIn, state: str, *, driver: str = "d1", ready_at: str = "", why: str = "",
             replica_id: int = 0, **more: Any) -> None:
    """Add the actor of a replica of `m` that the run with this driver has created."""
    text = encode_failure(FailedStart("ENGINE_EXITED", why, utc_now(), "abc", "lab", ["n"], ())) if why else ""
    cause = {"creation_task_failure_context": {"formatted_exception_string": f"RuntimeError: {text}"}} if why else None
    cluster.actors.append({
        "actor_id": f"{next(cluster.numbers):032x}", "name": f"ModelActor:m:{replica_id}", "state": state,
        "class_name": "ModelActor", "job_id": driver, "ray_namespace": "fleet", "node_id": None, "death_cause": cause,
        "num_restarts": "0", "repr_name": json.dumps({"v": 1, "readyAt": ready_at}) if ready_at else "", **more})


def an_apply(cluster: ClusterStandIn, log: str = NOT_WAITED, *, name: str = "j", driver: str = "d1", start: int = 1,
             status: str = "SUCCEEDED") -> None:
    job = add_run(cluster, log, status, name=name)
    job.driver_id, job.start_time = driver, start


@pytest.mark.parametrize(("actor", "state", "counts", "code", "seconds"), [
    ({"state": "ALIVE", "ready_at": UP_LATER}, "ok", {"ready": 1}, None, 31),
    ({"state": "DEAD", "ready_at": UP_LATER}, "ok", {"ready": 1}, None, 31),
    ({"state": "ALIVE", "ready_at": UP_LATER, "num_restarts": "2"}, "ok", {"ready": 1}, None, None),
    ({"state": "DEAD", "why": "the engine exited with code 3"}, "partial", {"failed": 1}, "ENGINE_EXITED", None),
    ({"state": "DEAD"}, "ok", {"gone": 1}, None, None),
    ({"state": "PENDING_CREATION"}, "partial", {"starting": 1}, None, None),
    ({"state": "ALIVE", "driver": "another"}, "unknown", {}, "NO_LONGER_KNOWN", None),
])
def test_a_replica_that_was_starting_when_its_run_ended_is_shown_as_the_cluster_has_it_now(
    cluster: ClusterStandIn, client: DashboardClient, actor: dict[str, Any], state: str, counts: dict[str, int],
    code: str | None, seconds: float | None,
) -> None:
    an_actor(cluster, **actor)
    an_apply(cluster)
    run, entry = read_run(client, "j", None), only_entry(client)
    assert (entry.state, entry.counts, entry.forgotten) == (state, counts, int(state == "unknown"))
    assert (entry.state, entry.counts, entry.message) == (run.state, run.counts, run.message)
    assert [(row.code, row.seconds) for row in run.outcomes] == [(code, seconds)]


def test_a_failed_start_after_the_end_of_its_run_has_its_reason(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    an_actor(cluster, "DEAD", why="the engine exited with code 3; last output: no weights")
    an_apply(cluster)
    [row] = read_run(client, "j", None).outcomes
    assert row.message == "the engine exited with code 3; last output: no weights"


def test_each_run_has_the_end_of_the_replica_that_it_created_itself_although_a_later_one_has_the_same_id(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    an_actor(cluster, "DEAD", driver="d1", why="no")
    an_actor(cluster, "ALIVE", driver="d2", ready_at=UP_LATER)
    an_apply(cluster, name="first")
    an_apply(cluster, name="second", driver="d2", start=2)
    assert [(run.id, run.state) for run in read_history(client, None, 20).runs] == [
        ("second", "ok"), ("first", "partial")]


@pytest.mark.parametrize(("ready_at", "state"), [(UP_LATER, "ok"), ("", "partial")])
def test_a_run_that_waited_for_a_replica_of_an_earlier_one_has_its_end(
    cluster: ClusterStandIn, client: DashboardClient, ready_at: str, state: str
) -> None:
    an_actor(cluster, "ALIVE", driver="d1", ready_at=ready_at)
    an_apply(cluster, name="first")
    an_apply(cluster, STARTED + summary(3, LEFT, waited=False), name="second", driver="d2", start=2)
    assert [run.state for run in read_history(client, None, 1).runs] == [state]
    assert read_run(client, "second", None).state == state


def test_a_replica_that_moved_to_other_cards_is_shown_by_its_last_try(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    an_actor(cluster, "DEAD", why="the card is in use")
    first = cluster.actors[0]["actor_id"]
    an_actor(cluster, "ALIVE", repr_name=json.dumps({"v": 1, "readyAt": UP_LATER, "earlierTries": [first]}))
    an_apply(cluster)
    assert only_entry(client).counts == {"ready": 1}


def test_a_reload_that_continues_is_not_told_by_the_readiness_from_before(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    an_actor(cluster, "ALIVE", ready_at=UP_LATER)
    an_apply(cluster, name="first")
    reloads = event(2, "replicaReloading", model="m", replicaId=0)
    an_apply(cluster, STARTED + reloads + summary(3, LEFT, waited=False), name="second", driver="d2", start=2)
    assert [run.state for run in read_history(client, None, 20).runs] == ["partial", "ok"]


def test_a_log_whose_events_hold_anything_breaks_nothing(cluster: ClusterStandIn, client: DashboardClient) -> None:
    an_actor(cluster, "ALIVE", ready_at=UP_LATER)
    an_apply(cluster, event(2, "replicaCreated", model=["m"], replicaId={}) + NOT_WAITED)
    assert only_entry(client).counts == {"ready": 1}


def test_a_run_that_died_has_what_became_of_the_replicas_it_created(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    an_actor(cluster, "ALIVE", ready_at=UP_LATER)
    an_apply(cluster, BEGAN, status="FAILED")
    assert (only_entry(client).state, only_entry(client).code, only_entry(client).counts) == (
        "unknown", "DIED", {"ready": 1})


CUT = '{"data": {"result": {"total": 9, "num_after_truncation": 1, "result": []}}}'


@pytest.mark.parametrize("answer", [(500, "no"), (200, CUT)])
def test_a_run_whose_actors_cannot_be_read_stays_as_it_ended(
    cluster: ClusterStandIn, client: DashboardClient, answer: tuple[int, str]
) -> None:
    an_apply(cluster)
    cluster.refusals["GET", "/api/v0/actors"] = [answer] * 9
    assert (only_entry(client).state, only_entry(client).counts) == ("partial", {"starting": 1})


def test_actors_are_read_only_for_runs_that_left_something_starting(
    cluster: ClusterStandIn, client: DashboardClient
) -> None:
    an_apply(cluster, STARTED + summary(3, ready("m", 0)))
    an_apply(cluster, BEGAN, name="under way", driver="d2", status="RUNNING")
    read_history(client, None, 20)
    assert [path for _, path in cluster.requests if path == "/api/v0/actors"] == []
