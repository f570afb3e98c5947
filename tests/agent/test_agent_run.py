"""One apply as a whole, with scripted attempts: order, turns, lock, waiting, and planning again."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray_keys import Keys

from fleetctl.agent import apply as apply_module
from fleetctl.agent import cluster as cluster_module
from fleetctl.agent import lock as lock_module
from fleetctl.agent import prefetch as prefetch_module
from fleetctl.agent import records, run_messages
from fleetctl.agent import run as run_module
from fleetctl.agent.apply import ApplyRun
from fleetctl.agent.attempt import Attempt
from fleetctl.agent.cluster import NodeNow
from fleetctl.agent.lock import Interrupted, LockBusy
from fleetctl.agent.messages import GotWeights, Replica
from fleetctl.agent.on_nodes import NodeAnswer
from fleetctl.agent.prefetch import Order, PrefetchResult
from fleetctl.agent.run import OnNodes, Run, Steps, Task, outcome_of
from fleetctl.agent.run_messages import ApplyRequest, EventStream, Holder, Outcome
from fleetctl.agent.wire import document_of, parse
from fleetctl.documents.events import RunSummary


class ScriptedCluster:
    """A cluster in which each replica follows a script, one word per step; the last word repeats."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scripts: dict[str, list[str]] = {}
        self.gone_down: dict[str, str] = {}
        self.begun: list[str] = []
        self.most_creating = 0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.lock = SimpleNamespace(released=False, released_after=None, release=self.release)
        self.keys = Keys().install(monkeypatch, run_messages)
        self.now = 0.0
        self.on_replan: Any = None
        cluster = self

        class ScriptedAttempt(Attempt):
            """The real attempt, with a script in place of its phases."""

            def __init__(self, replica: Replica, context: Any) -> None:
                super().__init__(replica, context)
                self.script = list(cluster.scripts.get(self.key, ["granted", "ready"]))
                self._phase = self.follow

            def follow(self) -> None:
                if self._handle is None:
                    self._handle = "seen by Ray"
                    cluster.begun.append(self.key)
                cluster.count()
                word = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                if word == "granted":
                    self.granted = True
                elif word != "wait":
                    kind, _, code = word.partition(":")
                    self._end(kind, code or None, f"{code} of {self.key}")

            def has_gone_down(self) -> bool:
                kind = cluster.gone_down.get(self.key)
                if kind:
                    self._end(kind, None, "it was ready")
                return kind is not None

        class ScriptedEarlierAttempt(ScriptedAttempt):
            def __init__(self, replica: Replica, context: Any) -> None:
                super().__init__(replica, context)
                self.granted = True

        self.current: list[ApplyRun] = []
        monkeypatch.setattr(apply_module, "Attempt", ScriptedAttempt)
        monkeypatch.setattr(apply_module, "EarlierAttempt", ScriptedEarlierAttempt)
        monkeypatch.setattr(run_module, "POLL_S", 0.0)
        monkeypatch.setattr(run_module, "signal", SimpleNamespace(signal=lambda *_: None, SIGTERM=15))
        monkeypatch.setattr(Run, "_work_in_thread", lambda run: run.work())
        monkeypatch.setattr(ApplyRun, "take", self.take)
        monkeypatch.setattr(apply_module, "ask_for_nodes", lambda *_: None)
        monkeypatch.setattr(apply_module, "forget_dead_actors", lambda: None)
        self.keys.install(monkeypatch, apply_module, lock_module, records)
        monkeypatch.setattr(records, "change", self.write_record)
        monkeypatch.setattr(cluster_module, "draining_nodes", set)
        monkeypatch.setattr(cluster_module, "workers_at_once", lambda: {"n1": 100})
        monkeypatch.setattr(cluster_module, "taken_names", lambda: {f"ModelActor:{key.replace('/', ':')}"
                                                            for key in self.earlier})
        monkeypatch.setattr(apply_module, "_is_starting", lambda _: True)
        monkeypatch.setattr(cluster_module, "nodes_now", lambda _: [NodeNow("n1", "DRAINING", {})])
        self.earlier: list[str] = []
        self.busy: Exception | None = None

    def write_record(self, kind: str, edit: Any, fleet: str = "") -> bool:
        """Write a version of a row without its copy in the job table, which no run reads."""
        row = f"{records.ROW}{kind}"
        number, found = records._newest(row)
        text = records._packed(edit(found).values())
        return lock_module.Numbered(f"records:{row}:").write(number + 1, text.encode())

    def count(self) -> None:
        creating = sum(task.begun and isinstance(task, Attempt) and not task.granted for task in self.current[0].tasks)
        self.most_creating = max(self.most_creating, creating)

    def not_created(self) -> list[str]:
        return [task.key for task in self.current[0].tasks if isinstance(task, Attempt) and not task.granted]

    def take(self, *_: Any) -> Any:
        if self.busy:
            raise self.busy
        return self.lock

    def release(self) -> None:
        assert not self.lock.released
        self.lock.released = True
        assert self.not_created() == [], "the lock is held until the last replica has its worker"
        self.lock.released_after = [kind for kind, _ in self.events]

    def emit(self, kind: str, message: str, level: str = "info", **fields: Any) -> None:
        self.events.append((kind, {"message": message, **document_of(fields)}))
        if kind == "replanWanted" and self.on_replan is not None:
            self.keys.put(f"gcs://{fields['answer']}".encode(), zlib.compress(json.dumps(self.on_replan).encode()))

    def run(self, *keys: str, **request: Any) -> dict[str, Any]:
        """Run an apply of these replicas to its end and return its summary."""
        whole = {"job": "job-1", "holder": {}, "parallelism": 10, "wait": True, "mayReplan": False, "await": [],
                 **request_of(*keys), **request}
        stream = EventStream()
        stream.emit = self.emit  # type: ignore[method-assign]
        self.current[:] = [ApplyRun(parse(ApplyRequest, whole), stream)]
        code = self.current[0].carry_out()
        kind, summary = self.events[-1]
        assert (kind, summary["exitCode"]) == ("runSummary", code)
        return summary

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


def request_of(
    *keys: str, blocked: tuple[Any, ...] = (), gpus: int = 10_000, variant: str | None = None
) -> dict[str, Any]:
    member = {"group": "main", "copy": 0, "role": "Standalone", "rank": 0, "node": "node-a", "nodeId": "n1",
              "gpus": gpus}
    actions = [{"id": key, "op": "create", "model": key.split("/")[0], "replicaId": int(key.split("/")[1]),
                "specHash": "h", "wanted": 9, "lifecycle": LIFECYCLE, "members": [member],
                **({"variant": variant} if variant else {})} for key in keys]
    specs = {"h": {"workers": [{"name": "main", "members": [{"engine": {"command": ["serve"]}}]}]}}
    plan = {"planId": "p" * 64, "fleet": {"name": "lab", "namespace": "fleet"}, "actions": actions, "specs": specs,
            "blocked": list(blocked)}
    return {"plan": plan, "record": {}, "logs": {f"{key}|main|0|0": f"{key}.log" for key in keys}}


LIFECYCLE = {"startupTimeout": 60}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    return ScriptedCluster(monkeypatch)


def outcomes(summary: dict[str, Any]) -> list[tuple[str, Any, str]]:
    return [(row["model"], row.get("replicaId"), row["outcome"]) for row in summary["outcomes"]]


def test_all_replicas_are_created_in_the_plans_order_and_awaited(cluster: ScriptedCluster) -> None:
    summary = cluster.run("a/0", "b/0", "a/1")
    assert cluster.begun == ["a/0", "b/0", "a/1"]
    assert outcomes(summary) == [("a", 0, "ready"), ("a", 1, "ready"), ("b", 0, "ready")]
    assert (summary["exitCode"], summary["interrupted"]) == (0, False)


def test_a_replica_that_was_ready_is_reported_in_its_final_state(cluster: ScriptedCluster) -> None:
    cluster.gone_down = {"a/1": "starting", "b/0": "failed"}
    summary = cluster.run("a/0", "a/1", "b/0")
    assert outcomes(summary) == [("a", 0, "ready"), ("a", 1, "starting"), ("b", 0, "failed")]
    assert (summary["exitCode"], summary["message"]) == (3, "1 of 3 ready")
    assert cluster.kinds()[-3:] == ["replicaStarting", "replicaFailed", "runSummary"]


def test_ids_are_sorted_as_numbers(cluster: ScriptedCluster) -> None:
    summary = cluster.run("a/10", "a/2", "a/1")
    assert [row[1] for row in outcomes(summary)] == [1, 2, 10]


def test_a_refused_replica_passes_its_turn_on_shared_cards(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": ["blocked:NODE_DRAINING"]}
    summary = cluster.run(**request_of("a/0", "a/1", "a/2", gpus=5_000))
    assert outcomes(summary) == [("a", 0, "blocked"), ("a", 1, "ready"), ("a", 2, "ready")]


def test_parallelism_limits_creating_but_not_waiting(cluster: ScriptedCluster) -> None:
    """Thirty engines with a long load all load at the same time, whatever the parallelism."""
    keys = [f"a/{number}" for number in range(30)]
    cluster.scripts = {key: ["wait", "granted", *["wait"] * 50, "ready"] for key in keys}
    waiting = []
    emit = cluster.emit

    def spy(kind: str, *arguments: Any, **fields: Any) -> None:
        if kind == "replicaReady" and not waiting:
            waiting.append(len(cluster.begun))
        emit(kind, *arguments, **fields)

    cluster.emit = spy  # type: ignore[method-assign]
    summary = cluster.run(*keys, parallelism=3)
    assert cluster.most_creating <= 3
    assert waiting == [30]
    assert len(summary["outcomes"]) == 30


def test_the_lock_is_released_when_the_last_created_replica_has_its_worker(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": ["granted", *["wait"] * 20, "ready"], "a/1": ["wait", "wait", "granted", "wait", "ready"]}
    cluster.run("a/0", "a/1")
    assert cluster.lock.released_after is not None
    assert "replicaReady" not in cluster.lock.released_after


def test_without_waiting_the_run_ends_when_all_replicas_are_created(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": ["granted", "wait"], "a/1": ["wait", "granted", "wait"]}
    summary = cluster.run("a/0", "a/1", wait=False)
    assert outcomes(summary) == [("a", 0, "starting"), ("a", 1, "starting")]
    assert all("code" not in row for row in summary["outcomes"])
    assert (summary["waited"], summary["exitCode"]) == (False, 0), "Ray calls a job with another code failed"


def test_without_waiting_what_was_not_created_is_missing_all_the_same(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": ["granted", "wait"], "a/1": ["blocked:NODE_DRAINING"]}
    assert cluster.run("a/0", "a/1", wait=False)["exitCode"] == 3
    cluster.scripts = {"a/2": ["granted", "wait"], "a/3": ["failed:NODE_TAKEN"]}
    assert cluster.run("a/2", "a/3", wait=False)["exitCode"] == 3


def test_replicas_that_were_starting_before_are_awaited_without_the_lock(cluster: ScriptedCluster) -> None:
    cluster.earlier = ["a/7"]
    cluster.scripts = {"a/7": ["granted", "wait", "wait", "ready"]}
    summary = cluster.run("a/8", **{"await": [{"key": "a", "lifecycle": LIFECYCLE}]})
    assert outcomes(summary) == [("a", 7, "ready"), ("a", 8, "ready")]
    assert "replicaReady" not in (cluster.lock.released_after or [])[:2]


def test_shares_of_a_card_are_requested_one_after_another(cluster: ScriptedCluster) -> None:
    cluster.scripts = {key: ["wait", "wait", "granted", "ready"] for key in ("a/0", "a/1", "a/2")}
    keys = ("a/0", "a/1", "a/2")
    request = request_of(*keys, gpus=5_000)
    for number, action in enumerate(request["plan"]["actions"]):
        [member] = action["members"]
        action["members"] = [{**member, "gpus": 2_000 + number}]
    cluster.run(*keys, **request)
    assert cluster.most_creating == 1


def test_equal_shares_of_a_card_are_requested_side_by_side(cluster: ScriptedCluster) -> None:
    cluster.scripts = {key: ["wait", "wait", "granted", "ready"] for key in ("a/0", "a/1", "a/2")}
    cluster.run("a/0", "a/1", "a/2", **request_of("a/0", "a/1", "a/2", gpus=5_000))
    assert cluster.most_creating == 3


def test_blocked_replicas_of_the_plan_are_in_the_summary(cluster: ScriptedCluster) -> None:
    row = {"model": "b", "code": "INSUFFICIENT_GPU", "message": "no room", "replicas": 2}
    summary = cluster.run("a/0", **request_of("a/0", blocked=(row,)))
    assert outcomes(summary) == [("a", 0, "ready"), ("b", None, "blocked")]
    assert (summary["exitCode"], summary["message"]) == (3, "1 of 3 ready")


def test_an_interrupted_run_reports_which_replicas_it_began_and_which_it_skipped(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.scripts = {"a/0": ["granted", "wait"], "a/1": ["wait"]}

    def heartbeat(run: ApplyRun) -> None:
        run.stop.set()  # what SIGTERM does, after the first round

    monkeypatch.setattr(ApplyRun, "_heartbeat", heartbeat)
    summary = cluster.run("a/0", "a/1", "a/2", "a/3", parallelism=1)
    assert summary["interrupted"] is True
    assert [(row["replicaId"], row["outcome"], row["code"]) for row in summary["outcomes"]] == [
        (0, "starting", "INTERRUPTED"), (1, "starting", "INTERRUPTED"), (2, "skipped", "INTERRUPTED"),
        (3, "skipped", "INTERRUPTED")]


def test_an_interrupted_run_asks_nothing_more_about_replicas_that_are_ready(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.gone_down = {"a/0": "failed"}
    monkeypatch.setattr(ApplyRun, "_heartbeat", lambda run: run.stop.set())
    cluster.scripts = {"a/0": ["ready"], "a/1": ["wait"]}
    assert outcomes(cluster.run("a/0", "a/1")) == [("a", 0, "ready"), ("a", 1, "starting")]


def test_without_waiting_the_run_still_awaits_what_may_not_be_left(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NodeAnswer(Task):
        """A reload whose replica answers, and so may be left, after some rounds."""

        answered = False

        def steps(self) -> Steps:
            for _ in range(5):
                yield
            self.answered = True
            while True:
                yield

        @property
        def may_be_left(self) -> bool:
            return self.answered

        def at_end(self, interrupted: bool) -> Outcome:
            return outcome_of(self.subject, "starting", None, f"{self.answered=}, {interrupted=}")

    reload = NodeAnswer("r/0", OnNodes("r", (), 0))
    monkeypatch.setattr(apply_module, "Reloads", lambda *_: SimpleNamespace(tasks=[reload]))
    [row] = cluster.run(wait=False)["outcomes"]
    assert (row["outcome"], row["message"]) == ("starting", "self.answered=True, interrupted=False")


def test_a_run_that_gets_no_lock_begins_nothing(cluster: ScriptedCluster) -> None:
    cluster.busy = LockBusy("lab", Holder("job-0"))
    summary = cluster.run("a/0")
    assert (summary["exitCode"], summary["holder"]["job"], cluster.begun) == (5, "job-0", [])
    assert cluster.kinds() == ["version", "lockHeld", "runSummary"]
    cluster.busy = Interrupted()
    summary = cluster.run("a/0")
    assert (summary["exitCode"], summary["interrupted"], cluster.begun) == (3, True, [])


def test_a_plan_that_may_be_applied_once_is_applied_once(cluster: ScriptedCluster) -> None:
    assert cluster.run("a/0", singleUse=True)["exitCode"] == 0
    summary = cluster.run("a/0", singleUse=True, job="job-2")
    assert (summary["exitCode"], summary["usedBy"], cluster.begun) == (6, "job-1", ["a/0"])


REFUSED = ["blocked:NODE_DRAINING"]


def test_without_a_client_that_can_plan_a_refusal_is_the_outcome(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": REFUSED}
    assert outcomes(cluster.run("a/0")) == [("a", 0, "blocked")]
    assert "replanWanted" not in cluster.kinds()


@pytest.mark.parametrize("code", ["blocked:NODE_DRAINING", "blocked:NODE_GONE", "blocked:NODE_TAKEN",
                                  "failed:NODE_TAKEN", "failed:IMAGE_MISSING"])
def test_a_refused_replica_goes_to_another_node_in_the_same_run(cluster: ScriptedCluster, code: str) -> None:
    cluster.scripts = {"a/1": [code]}
    cluster.on_replan = {"request": request_of("a/2")}
    summary = cluster.run("a/0", "a/1", mayReplan=True)
    assert outcomes(summary) == [("a", 0, "ready"), ("a", 2, "ready")]
    assert summary["exitCode"] == 0
    [wanted] = [fields for kind, fields in cluster.events if kind == "replanWanted"]
    assert [row["replicaId"] for row in wanted["refused"]] == [1]
    assert wanted["nodes"][0]["state"] == "DRAINING"
    assert "planning again for 1 replica" in wanted["message"]
    assert "replanned" in cluster.kinds()
    assert "replicaBlocked" not in cluster.kinds()


def test_the_lock_is_held_while_the_client_plans_again(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": REFUSED}
    cluster.on_replan = {"request": request_of("a/1")}
    cluster.run("a/0", mayReplan=True)
    assert "replanned" in (cluster.lock.released_after or [])


def test_the_blocked_rows_of_a_new_plan_replace_those_of_the_same_model(cluster: ScriptedCluster) -> None:
    old = [{"model": "a", "code": "X", "message": "old", "replicas": 1},
           {"model": "b", "code": "X", "message": "kept", "replicas": 1}]
    new = {"model": "a", "code": "Y", "message": "new", "replicas": 2}
    cluster.scripts = {"a/0": REFUSED}
    cluster.on_replan = {"request": request_of(blocked=(new,))}
    summary = cluster.run("a/0", mayReplan=True, **request_of("a/0", blocked=tuple(old)))
    assert [(row["model"], row["message"], row["replicas"]) for row in summary["outcomes"]] == [
        ("b", "kept", 1), ("a", "new", 2)]


def test_if_the_client_cannot_plan_the_refusal_stays(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": REFUSED}
    cluster.on_replan = {"why": "the inventory is not complete"}
    summary = cluster.run("a/0", mayReplan=True)
    assert outcomes(summary) == [("a", 0, "blocked")]
    assert "notReplanned" in cluster.kinds()


def test_the_wait_for_a_missing_client_is_bounded(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_module, "REPLAN_S", 0.01)
    cluster.scripts = {"a/0": REFUSED}
    summary = cluster.run("a/0", mayReplan=True)
    assert outcomes(summary) == [("a", 0, "blocked")]
    [message] = [fields["message"] for kind, fields in cluster.events if kind == "notReplanned"]
    assert "no client has answered" in message


FAILED = ["granted", "failed:ENGINE_EXITED"]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_module, "TOGETHER_S", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_variant_that_fails_is_replaced_by_another_in_the_same_run(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": FAILED}
    cluster.on_replan = {"request": request_of("a/2", variant="small")}
    summary = cluster.run(mayReplan=True, **request_of("a/0", "a/1", variant="large"))
    assert outcomes(summary) == [("a", 1, "ready"), ("a", 2, "ready")]
    assert [(row["variant"], row.get("code")) for row in summary["outcomes"]] == [
        ("large", None), ("small", "OTHER_VARIANT")]
    assert summary["outcomes"][1]["message"] == (
        "variant large failed in its place, as a/0: ENGINE_EXITED: ENGINE_EXITED of a/0")
    assert summary["exitCode"] == 0
    [wanted] = [fields for kind, fields in cluster.events if kind == "replanWanted"]
    assert (wanted["refused"], [(row["replicaId"], row["variant"]) for row in wanted["failed"]]) == (
        [], [(0, "large")])
    [replaced] = [fields for kind, fields in cluster.events if kind == "variantFailed"]
    assert replaced["message"].endswith("a/2 takes its place as variant small")
    assert "replicaFailed" not in cluster.kinds()


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("script", "kind", "code"), [
    (["skipped:LOCK_LOST"], "skipped", "LOCK_LOST"), (["blocked:PAUSED"], "blocked", "PAUSED"),
    (["granted", "ready:CARDS_UNCHECKED"], "ready", "CARDS_UNCHECKED")])
def test_the_failure_of_a_variant_is_said_whatever_becomes_of_the_one_in_its_place(
    cluster: ScriptedCluster, script: list[str], kind: str, code: str
) -> None:
    cluster.scripts = {"a/0": FAILED, "a/1": script}
    cluster.on_replan = {"request": request_of("a/1", variant="small")}
    [row] = cluster.run(mayReplan=True, **request_of("a/0", variant="large"))["outcomes"]
    assert (row["outcome"], row["code"], row["message"]) == (
        kind, code,
        f"{code} of a/1; variant large failed in its place, as a/0: ENGINE_EXITED: ENGINE_EXITED of a/0")


@pytest.mark.usefixtures("at_once")
def test_the_output_of_an_engine_comes_last_in_each_message_and_only_its_own(cluster: ScriptedCluster) -> None:
    """What shows a message ends it where the output begins, so nothing may follow it."""
    cluster.scripts = {"a/0": ["granted", "failed:ENGINE_EXITED; last output: line one\nline two"],
                       "a/1": ["skipped:LOCK_LOST; last output: other words"]}
    cluster.on_replan = {"request": request_of("a/1", variant="small")}
    [row] = cluster.run(mayReplan=True, **request_of("a/0", variant="large"))["outcomes"]
    told = {kind: fields["message"] for kind, fields in cluster.events}
    assert told["replanWanted"] == "ENGINE_EXITED: planning again for 1 replica"
    assert told["variantFailed"] == (
        "a/0: variant large failed: ENGINE_EXITED; a/1 takes its place as variant small")
    how, _, output = row["message"].partition("; last output: ")
    assert how.startswith("LOCK_LOST; variant large failed in its place, as a/0: ENGINE_EXITED")
    assert output == "other words of a/1"


@pytest.mark.usefixtures("at_once")
def test_failures_of_variants_without_another_one_stay_failures(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": FAILED[1:], "a/1": FAILED[1:], "a/2": REFUSED}
    row = {"model": "a", "code": "Y", "message": "no room", "replicas": 1}
    cluster.on_replan = {"request": request_of("a/3", variant="small", blocked=(row,))}
    summary = cluster.run(mayReplan=True, **request_of("a/0", "a/1", "a/2", variant="large"))
    assert outcomes(summary) == [("a", 0, "failed"), ("a", 1, "failed"), ("a", 3, "ready"), ("a", None, "blocked")]
    assert summary["exitCode"] == 3


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("script", [["failed:EVICTED"], ["failed:AGENT_ERROR"], ["failed:NEVER_CONSTRUCTED"]])
def test_what_does_not_speak_against_a_variant_is_an_outcome(cluster: ScriptedCluster, script: list[str]) -> None:
    cluster.scripts = {"a/0": script}
    assert outcomes(cluster.run(mayReplan=True, **request_of("a/0", variant="large"))) == [("a", 0, "failed")]
    assert "replanWanted" not in cluster.kinds()


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("request_", [{"mayReplan": False}, {"mayReplan": True, "wait": False}])
def test_only_a_run_whose_client_waits_changes_variants(cluster: ScriptedCluster, request_: dict[str, bool]) -> None:
    cluster.scripts = {"a/0": ["failed:ENGINE_EXITED"]}
    assert outcomes(cluster.run(**request_, **request_of("a/0", variant="large"))) == [("a", 0, "failed")]
    assert "replanWanted" not in cluster.kinds()


@pytest.mark.usefixtures("at_once")
def test_a_client_that_has_gone_is_asked_once_about_failed_variants(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_module, "REPLAN_S", 0.01)
    cluster.scripts = {"a/0": FAILED, "a/1": ["granted", *["wait"] * 2_000, "failed:ENGINE_EXITED"]}
    summary = cluster.run(mayReplan=True, **request_of("a/0", "a/1", variant="large"))
    assert outcomes(summary) == [("a", 0, "failed"), ("a", 1, "failed")]
    assert cluster.kinds().count("replanWanted") == 1


@pytest.mark.usefixtures("at_once")
def test_a_variant_may_fail_after_another_has_failed(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": FAILED, "a/1": FAILED, "a/2": FAILED, "a/3": FAILED, "a/4": FAILED}
    names = iter(["a/1", "a/2", "a/3", "a/4", "a/5"])

    def emit(kind: str, message: str, level: str = "info", **fields: Any) -> None:
        if kind == "replanWanted":
            name = next(names)
            cluster.on_replan = {"request": request_of(name, variant=f"v{name[-1]}")}
        original(kind, message, level, **fields)

    original, cluster.emit = cluster.emit, emit  # type: ignore[method-assign]
    summary = cluster.run(mayReplan=True, **request_of("a/0", variant="v0"))
    assert outcomes(summary) == [("a", 5, "ready")]


@pytest.mark.usefixtures("at_once")
def test_a_client_that_plans_a_failed_variant_again_is_not_asked_for_ever(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": FAILED, "a/1": FAILED}
    cluster.on_replan = {"request": request_of("a/1", variant="large")}
    assert outcomes(cluster.run(mayReplan=True, **request_of("a/0", variant="large"))) == [("a", 1, "failed")]
    assert cluster.kinds().count("replanWanted") == 1


@pytest.mark.parametrize("script", [FAILED, REFUSED])
def test_an_interrupt_before_another_plan_leaves_each_outcome_an_event_of_its_own(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch, script: list[str]
) -> None:
    cluster.scripts = {"a/0": script}
    monkeypatch.setattr(ApplyRun, "_replan", lambda run: run._refused and run.stop.set() is None)
    summary = cluster.run(mayReplan=True, **request_of("a/0", "a/1", variant="large"))
    [row] = [row for row in summary["outcomes"] if row["replicaId"] == 0]
    [event] = [fields for kind, fields in cluster.events if kind == f"replica{row['outcome'].capitalize()}"
               and fields["replicaId"] == 0]
    assert (row["code"], event["code"]) == (event["code"], script[-1].partition(":")[2])
    assert summary["interrupted"] is True


def test_a_new_plan_is_requested_at_most_three_times(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": REFUSED, "a/1": REFUSED}
    cluster.on_replan = {"request": request_of("a/1")}
    summary = cluster.run("a/0", mayReplan=True)
    assert cluster.kinds().count("replanWanted") == 3
    assert outcomes(summary) == [("a", 1, "blocked")]


def test_a_replica_refused_while_the_client_plans_is_part_of_the_next_question(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer covers only the replicas that the question named: without another one, nothing would report b/0."""
    take, first_looks = run_messages.take_document, iter([None])
    monkeypatch.setattr(run_messages, "take_document", lambda name: next(first_looks, name) and take(name))
    cluster.scripts = {"a/0": REFUSED, "b/0": ["granted", "failed:NODE_GONE"]}
    cluster.on_replan = {"request": request_of("a/1")}
    cluster.run("a/0", "b/0", mayReplan=True)
    questions = [fields["refused"] for kind, fields in cluster.events if kind == "replanWanted"]
    assert [[row["model"] for row in refused] for refused in questions] == [["a"], ["b"]]
    assert (cluster.lock.released_after or []).count("replanned") == 2


GOT = GotWeights("origin", "/m", 1, 1.0)


class Asked:
    """Stands in for a task on a node: `answers` gives each answer, None = not yet. Records the nodes asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Callable[[str], PrefetchResult | None]) -> None:
        self.nodes: list[str] = []

        def ask(_: object, node_id: str, order: Order, limit_s: float) -> Any:
            self.nodes.append(node_id)
            assert (len(order.members), limit_s) == (1, 5 + prefetch_module.MARGIN_S)
            assert order.members[0].engine.command == ("serve",)
            return SimpleNamespace(answer=lambda: (row := answers(node_id)) and NodeAnswer(node_id, [row]))

        monkeypatch.setattr(prefetch_module, "Asked", ask)
        monkeypatch.setattr(prefetch_module, "add", lambda *_: True)


def floor(model: str, count: int) -> dict[str, Any]:
    return {"id": f"{model}/prefetch", "op": "prefetch", "model": model, "specHash": "h",
            "lifecycle": {"startupTimeout": 5}, "members": [
                {"group": "main", "copy": 0, "role": "Standalone", "rank": 0, "nodeId": f"n{number}",
                 "node": f"node-{number}", "weights": {"artifact": "1" * 64, "from": []}}
                for number in range(1, count + 1)]}


def test_weights_of_the_floor_are_fetched_last_and_without_the_lock(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(node_id: str) -> PrefetchResult | None:
        assert cluster.lock.released_after is not None
        assert "replicaReady" in cluster.kinds()
        if node_id == "n1":
            return PrefetchResult("1" * 64, trouble="no room")
        cluster.current[0].stop.set()
        return PrefetchResult("1" * 64, GOT)

    Asked(monkeypatch, answer)
    wanted = request_of("m/4")
    wanted["plan"]["actions"][0]["op"] = "promote"
    wanted["plan"]["actions"] += [floor("m", 2), floor("never", 2)]
    summary = cluster.run(**wanted)
    rows = [(row["outcome"], row["level"], row.get("code"), row["nodes"]) for row in summary["outcomes"]]
    assert rows == [
        ("ready", "HOT", None, ["node-a"]), ("failed", "COLD", "WEIGHTS_FAILED", ["node-1"]),
        ("ready", "COLD", None, ["node-2"]), *(("skipped", "COLD", "INTERRUPTED", [f"node-{n}"]) for n in (1, 2))]
    assert (summary["exitCode"], summary["interrupted"]) == (3, True)
    assert [RunSummary.model_validate({"seq": 1, "time": "", "type": "runSummary", **summary}).outcomes]


def test_weights_of_a_paused_model_are_not_fetched(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, lambda _: PrefetchResult("1" * 64, GOT))
    records.add("pause", "x", {"verb": "pause", "fleet": "lab", "namespace": "fleet", "model": "more", "who": "ana"})
    wanted = request_of("m/4")
    wanted["plan"]["actions"] += [floor("more", 1), floor("m", 1)]
    summary = cluster.run(**wanted)
    assert [(row["model"], row["outcome"], row.get("code"), row["message"]) for row in summary["outcomes"]] == [
        ("m", "ready", None, " of m/4"), ("more", "blocked", "PAUSED", "paused by ana"), ("m", "ready", None, "")]
    assert (asked.nodes, summary["exitCode"]) == (["n1"], 3)


def run_with_floor(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch, **request: Any
) -> tuple[list[str], dict[str, Any]]:
    """Run an apply of one replica and the floor of two models; return the nodes that fetched, and the summary."""
    asked = Asked(monkeypatch, lambda _: PrefetchResult("1" * 64, GOT))
    wanted = request_of("m/4")
    wanted["plan"]["actions"] += [floor("m", 3), floor("more", 3), floor("last", 1)]
    return asked.nodes, cluster.run(**{**wanted, **request})


def test_a_run_that_does_not_wait_fetches_on_a_few_nodes_only(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.scripts = {"m/4": ["granted", "wait"]}
    fetched_on, summary = run_with_floor(cluster, monkeypatch, wait=False)
    assert fetched_on == ["n1", "n2", "n3", "n1"]
    assert [row["outcome"] for row in summary["outcomes"]] == ["starting"] + ["ready"] * 4
    cluster.scripts = {}
    assert len(run_with_floor(cluster, monkeypatch)[0]) == 7


def test_a_stopping_run_begins_no_fetch(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ApplyRun, "_release", lambda run: run.stop.set())
    fetched_on, summary = run_with_floor(cluster, monkeypatch)
    assert (fetched_on, summary["interrupted"]) == ([], True)
    assert [row["code"] for row in summary["outcomes"][1:]] == ["INTERRUPTED"] * 7


def test_a_run_interrupted_during_a_call_that_hangs_reports_immediately_what_has_ended(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def answer(node_id: str) -> PrefetchResult | None:
        if node_id == "n2":
            cluster.current[0].stop.set()  # what SIGTERM does
            assert over.wait(60)
        return PrefetchResult("1" * 64, GOT)

    Asked(monkeypatch, answer)
    wanted = request_of("m/4")
    wanted["plan"]["actions"] += [floor("m", 2)]
    monkeypatch.setattr(run_module, "REPORT_S", 0.05)
    monkeypatch.setattr(Run, "_work_in_thread", WORK_IN_THREAD)
    try:
        summary = cluster.run(**wanted)
    finally:
        over.set()
    assert [(row["outcome"], row.get("level"), row["nodes"]) for row in summary["outcomes"]] == [
        ("ready", None, ["node-a"]), ("ready", "COLD", ["node-1"]), ("skipped", "COLD", ["node-2"])]
    assert (summary["exitCode"], summary["interrupted"]) == (3, True)


def test_an_error_of_the_run_itself_ends_it(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: ApplyRun) -> None:
        raise OSError("no Ray")

    monkeypatch.setattr(ApplyRun, "_already_starting", broken)
    monkeypatch.setattr(Run, "_work_in_thread", WORK_IN_THREAD)
    with pytest.raises(OSError, match="no Ray"):
        cluster.run("a/0")


WORK_IN_THREAD = Run._work_in_thread
