"""A pilot in a run of the agent: the others follow once it is ready, in the same run, or not at all if it failed."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_cluster import FAILED, REFUSED, ScriptedCluster, outcomes, request_of

from fleetctl.agent import apply as apply_module


class Lock:
    """A lock that another run may have; `again` = how often it was taken again."""

    def __init__(self) -> None:
        self.released, self.again, self.busy = False, 0, False

    def release(self) -> None:
        assert not self.released
        self.released = True

    def take_again(self) -> bool:
        if self.busy:
            return False
        self.again += self.released
        self.released = False
        return True


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    found = ScriptedCluster(monkeypatch)
    found.lock = Lock()  # type: ignore[assignment]
    return found


def with_pilot(*keys: str, after: int = 3, model: str = "a", variant: str | None = None) -> dict[str, Any]:
    request = request_of(*keys, variant=variant)
    request["plan"]["afterPilot"] = [{"model": model, "variant": variant}] * after
    return request


def rows(summary: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(row["model"], row["outcome"], row.get("code"), row.get("replicas") or 1) for row in summary["outcomes"]]


def test_the_others_are_created_in_the_same_run_once_the_pilot_is_ready(cluster: ScriptedCluster) -> None:
    cluster.on_replan = {"request": request_of("a/1", "a/2", "a/3")}
    summary = cluster.run(mayReplan=True, **with_pilot("a/0", "b/0"))
    assert cluster.begun == ["a/0", "b/0", "a/1", "a/2", "a/3"]
    assert outcomes(summary) == [*(("a", number, "ready") for number in range(4)), ("b", 0, "ready")]
    assert summary["exitCode"] == 0
    [wanted] = [fields for kind, fields in cluster.events if kind == "replanWanted"]
    assert [(row["model"], row["replicaId"]) for row in wanted["pilots"]] == [("a", 0)]
    assert (wanted["refused"], wanted["failed"]) == ([], [])
    assert wanted["message"] == "pilot a/0 is ready: planning again for 3 replicas"
    [replanned] = [fields for kind, fields in cluster.events if kind == "replanned"]
    assert (replanned["message"], replanned["waiting"]) == ("planned again: 3 of 3", 0)


def test_the_lock_is_free_while_the_pilot_starts_and_held_while_others_are_planned(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": ["granted", *["wait"] * 5, "ready"]}
    cluster.on_replan = {"request": request_of("a/1")}
    cluster.run(mayReplan=True, **with_pilot("a/0", after=1))
    kinds = cluster.kinds()
    assert kinds.index("lockReleased") < kinds.index("replicaReady") < kinds.index("replanWanted")
    assert kinds.count("lockReleased") == 2
    assert cluster.lock.again == 1


def test_of_a_failed_pilot_the_others_are_never_begun(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": FAILED}
    summary = cluster.run(mayReplan=True, **with_pilot("a/0", "b/0", after=39))
    assert cluster.begun == ["a/0", "b/0"]
    assert rows(summary) == [("a", "failed", "ENGINE_EXITED", 1), ("b", "ready", None, 1),
                             ("a", "skipped", "PILOT_FAILED", 39)]
    assert summary["outcomes"][2]["message"] == "their pilot a/0 failed: ENGINE_EXITED: ENGINE_EXITED of a/0"
    assert (summary["exitCode"], summary["message"]) == (3, "1 of 41 ready")
    assert "replanWanted" not in cluster.kinds()


def test_a_pilot_that_was_starting_before_the_run_is_awaited_and_followed(cluster: ScriptedCluster) -> None:
    cluster.earlier = ["a/0"]
    cluster.scripts = {"a/0": ["wait", "ready"]}
    cluster.on_replan = {"request": request_of("a/1")}
    summary = cluster.run(mayReplan=True, **with_pilot(after=1), **{"await": [{"key": "a", "lifecycle": {
        "startupTimeout": 60}}]})
    assert outcomes(summary) == [("a", 0, "ready"), ("a", 1, "ready")]


def test_what_waits_for_a_pilot_whose_start_has_ended_since_the_plan_is_planned_at_once(cluster: ScriptedCluster
                                                                                        ) -> None:
    cluster.on_replan = {"request": request_of("a/1")}
    summary = cluster.run(mayReplan=True, **with_pilot(after=1))
    assert (outcomes(summary), summary["exitCode"]) == ([("a", 1, "ready")], 0)
    [wanted] = [fields for kind, fields in cluster.events if kind == "replanWanted"]
    assert [row["model"] for row in wanted["pilots"]] == ["a"]
    assert wanted["message"] == "the start of a pilot has ended: planning again for 1 replica"


@pytest.mark.parametrize(("request_", "message"), [
    ({"mayReplan": True, "wait": False}, "the next apply creates them, once their pilot a/0 is ready"),
    ({"mayReplan": False, "wait": True}, "their pilot a/0 is ready; the next apply creates them")])
def test_a_run_that_does_not_wait_or_cannot_plan_leaves_the_others_to_the_next(
    cluster: ScriptedCluster, request_: dict[str, Any], message: str
) -> None:
    cluster.scripts = {"a/0": ["granted", *["wait"] * 3, "ready"]}
    summary = cluster.run(**request_, **with_pilot("a/0"))
    assert rows(summary)[1] == ("a", "skipped", "AFTER_PILOT", 3)
    assert summary["outcomes"][1]["message"] == message
    assert summary["exitCode"] == (3 if request_["wait"] else 0)
    assert "replanWanted" not in cluster.kinds()


def test_without_an_answer_the_others_are_left_to_the_next_apply(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_module, "REPLAN_S", 0.01)
    summary = cluster.run(mayReplan=True, **with_pilot("a/0"))
    assert rows(summary) == [("a", "ready", None, 1), ("a", "skipped", "AFTER_PILOT", 3)]
    assert summary["outcomes"][1]["message"] == (
        "their pilot a/0 is ready, but no client has answered; the next apply creates them")
    assert cluster.lock.released


def test_another_run_with_the_lock_is_waited_for_and_then_left_alone(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_module, "LOCK_S", 0.01)
    cluster.lock.busy = True
    summary = cluster.run(mayReplan=True, **with_pilot("a/0"))
    assert summary["outcomes"][1]["message"] == (
        "their pilot a/0 is ready, but another run has the lock; the next apply creates them")
    assert "replanWanted" not in cluster.kinds()


def test_a_pilot_that_a_node_refuses_goes_to_another_and_the_others_wait_for_it(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": REFUSED}
    answers = iter([{"request": with_pilot("a/1", after=2)}, {"request": request_of("a/2", "a/3")}])

    def emit(kind: str, message: str, level: str = "info", **fields: Any) -> None:
        if kind == "replanWanted":
            cluster.on_replan = next(answers)
        ScriptedCluster.emit(cluster, kind, message, level, **fields)

    cluster.emit = emit  # type: ignore[method-assign]
    summary = cluster.run(mayReplan=True, **with_pilot("a/0", after=2))
    assert outcomes(summary) == [("a", 1, "ready"), ("a", 2, "ready"), ("a", 3, "ready")]
    assert summary["exitCode"] == 0


def test_of_each_variant_the_others_follow_its_own_pilot(cluster: ScriptedCluster) -> None:
    """Replicas that are no pilot of what waits ask no question."""
    cluster.scripts = {"a/1": ["granted", *["wait"] * 20, "failed:EVICTED"]}
    cluster.on_replan = {"request": request_of("a/2", "a/3", variant="x")}
    cluster.on_replan["request"]["plan"]["afterPilot"] = [{"model": "a", "variant": "y"}]
    request = with_pilot("a/0", after=2, variant="x")
    [other] = request_of("a/1", variant="y")["plan"]["actions"]
    request["plan"]["actions"].append(other)
    request["logs"]["a/1|main|0|0"] = "log"
    request["plan"]["afterPilot"].append({"model": "a", "variant": "y"})
    summary = cluster.run(mayReplan=True, **request)
    assert rows(summary) == [("a", "ready", None, 1), ("a", "failed", "EVICTED", 1), ("a", "ready", None, 1),
                             ("a", "ready", None, 1), ("a", "skipped", "PILOT_FAILED", 1)]
    assert summary["outcomes"][-1]["message"].startswith("variant y: their pilot a/1 failed: EVICTED: ")
    assert cluster.kinds().count("replanWanted") == 1


def test_of_two_models_each_waits_for_its_own_pilot_and_neither_is_forgotten(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"b/0": ["granted", *["wait"] * 20, "ready"]}
    answers = iter([{"request": request_of("a/1")}, {"request": request_of("b/1", "b/2")}])

    def emit(kind: str, message: str, level: str = "info", **fields: Any) -> None:
        if kind == "replanWanted":
            cluster.on_replan = next(answers)
        ScriptedCluster.emit(cluster, kind, message, level, **fields)

    cluster.emit = emit  # type: ignore[method-assign]
    request = with_pilot("a/0", "b/0", "c/0", after=1)
    request["plan"]["afterPilot"] += [{"model": "b", "variant": None}] * 2
    summary = cluster.run(mayReplan=True, **request)
    assert cluster.begun == ["a/0", "b/0", "c/0", "a/1", "b/1", "b/2"]
    assert summary["exitCode"] == 0
    assert [fields["message"] for kind, fields in cluster.events if kind == "replanWanted"] == [
        "pilot a/0 is ready: planning again for 1 replica", "pilot b/0 is ready: planning again for 2 replicas"]


def test_two_pilots_that_are_ready_together_lead_to_one_question(cluster: ScriptedCluster) -> None:
    cluster.on_replan = {"request": request_of("a/1", "b/1", "b/2")}
    request = with_pilot("a/0", "b/0", after=1)
    request["plan"]["afterPilot"] += [{"model": "b", "variant": None}] * 2
    assert cluster.run(mayReplan=True, **request)["exitCode"] == 0
    [wanted] = [fields for kind, fields in cluster.events if kind == "replanWanted"]
    assert wanted["message"].endswith("planning again for 3 replicas")


@pytest.mark.parametrize("variant", ["x", None])
def test_the_pilot_that_has_ended_since_the_plan_is_named_with_its_variant(
    cluster: ScriptedCluster, variant: str | None
) -> None:
    cluster.on_replan = {"request": request_of("a/1", variant=variant)}
    cluster.run(mayReplan=True, **with_pilot(after=1, variant=variant))
    [wanted] = [fields for kind, fields in cluster.events if kind == "replanWanted"]
    assert [row.get("variant") for row in wanted["pilots"]] == [variant]


def test_a_run_that_cannot_plan_asks_about_no_pilot_that_has_ended(cluster: ScriptedCluster) -> None:
    summary = cluster.run(mayReplan=False, **with_pilot(after=1))
    assert rows(summary) == [("a", "skipped", "AFTER_PILOT", 1)]
    assert summary["outcomes"][0]["message"] == "the next apply creates them, once their pilot is ready"
    assert "replanWanted" not in cluster.kinds()


def test_an_interrupted_run_says_so_of_what_waited(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": ["granted", "wait"]}

    def emit(kind: str, message: str, level: str = "info", **fields: Any) -> None:
        ScriptedCluster.emit(cluster, kind, message, level, **fields)
        if kind == "lockReleased":
            cluster.current[0].stop.set()

    cluster.emit = emit  # type: ignore[method-assign]
    summary = cluster.run(mayReplan=True, **with_pilot("a/0"))
    assert rows(summary) == [("a", "starting", "INTERRUPTED", 1), ("a", "skipped", "INTERRUPTED", 3)]


def grown(*keys: str, nodes: int, after: int = 0, waiting: int = 39) -> dict[str, Any]:
    """A request whose plan needs new nodes: some now, some once the pilot is ready."""
    request = request_of(*keys)
    request["plan"]["growth"] = [{"name": "big", "labels": {"pool": "big"}, "gpus": 8, "cpus": 0, "keeps": [],
                                  "nodes": nodes, "max": 6}]
    request["plan"]["blocked"] = [{"model": "a", "replicas": waiting, "code": "WAITS_FOR_NODES",
                                   "message": "would run on new nodes", **({"afterPilot": after} if after else {})}]
    return request


def test_the_nodes_of_what_follows_a_pilot_are_requested_once_it_is_ready(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": ["granted", "wait", "wait", "ready"]}
    cluster.on_replan = {"request": grown(nodes=5)}
    summary = cluster.run(mayReplan=True, **grown("a/0", nodes=0, after=39))
    assert cluster.asked_nodes == [0, 5]
    assert rows(summary) == [("a", "ready", None, 1), ("a", "blocked", "WAITS_FOR_NODES", 39)]
    [wanted] = [fields for kind, fields in cluster.events if kind == "replanWanted"]
    assert wanted["message"] == "pilot a/0 is ready: planning again for 39 replicas"
    assert cluster.lock.released


def test_of_a_failed_pilot_no_further_nodes_are_requested(cluster: ScriptedCluster) -> None:
    cluster.scripts = {"a/0": FAILED}
    summary = cluster.run(mayReplan=True, **grown("a/0", nodes=0, after=39))
    assert (cluster.asked_nodes, summary["exitCode"]) == ([0], 3)
    assert "replanWanted" not in cluster.kinds()


def test_a_model_asks_once_for_the_nodes_that_follow_its_pilot(cluster: ScriptedCluster) -> None:
    cluster.on_replan = {"request": grown("a/2", nodes=5, after=3)}
    cluster.run(mayReplan=True, **grown("a/0", "a/1", nodes=0, after=39))
    assert cluster.kinds().count("replanWanted") == 1


def test_while_the_pilot_itself_waits_for_its_node_nothing_is_asked(cluster: ScriptedCluster) -> None:
    summary = cluster.run(mayReplan=True, **grown(nodes=1, after=39, waiting=40))
    assert rows(summary) == [("a", "blocked", "WAITS_FOR_NODES", 40)]
    assert "replanWanted" not in cluster.kinds()
