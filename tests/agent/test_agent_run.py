"""One apply as a whole, with scripted attempts: order, turns, lock, and waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_cluster import LIFECYCLE, ScriptedCluster, outcomes, request_of

from fleetctl.agent import apply as apply_module
from fleetctl.agent import prefetch as prefetch_module
from fleetctl.agent import records
from fleetctl.agent import run as run_module
from fleetctl.agent.apply import ApplyRun
from fleetctl.agent.lock import Interrupted, LockBusy
from fleetctl.agent.messages import GotWeights
from fleetctl.agent.on_nodes import NodeAnswer
from fleetctl.agent.prefetch import Order, PrefetchResult
from fleetctl.agent.run import OnNodes, Run, Steps, Task, outcome_of
from fleetctl.agent.run_messages import Holder, Outcome
from fleetctl.documents.events import RunSummary


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    return ScriptedCluster(monkeypatch)


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
