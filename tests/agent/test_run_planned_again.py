"""One apply whose plan changes while it runs: nodes refuse replicas, and variants fail."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_cluster import FAILED, REFUSED, ScriptedCluster, outcomes, request_of

from fleetctl.agent import apply as apply_module
from fleetctl.agent import run_messages
from fleetctl.agent.apply import ApplyRun


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    return ScriptedCluster(monkeypatch)


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
