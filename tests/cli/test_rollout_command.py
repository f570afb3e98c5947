"""`fleetctl rollout`: all outdated models, a few at a time, each as `replace` does; what cannot go on is left alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, Steps, event, summary
from record_rows import record

from fleetctl.agent.mark import actor_name
from fleetctl.cli import rollout as rollout_module


@dataclass
class ActingCluster:
    """A cluster whose agents carry out every request. `breaks` = models whose new replicas fail to start."""

    stand_in: ClusterStandIn
    breaks: set[str] = field(default_factory=set)
    steps: list[str] = field(default_factory=list)
    ready: list[Counter[str]] = field(default_factory=list)

    def __call__(self, request: dict[str, Any]) -> Steps:
        answer = self._create(request) if "plan" in request else self._end(request)
        self.ready.append(Counter(actor["name"].rsplit(":", 1)[0] for actor in self.stand_in.actors
                                  if actor["state"] == "ALIVE"))
        return answer

    def _create(self, request: dict[str, Any]) -> Steps:
        rows, done = [], []
        for action in request["plan"]["actions"]:
            model, number, node = action["model"], action["replicaId"], action["members"][0]
            done.append(f"+{model}/{number}")
            row = {"model": model, "replicaId": number, "nodes": [], "outcome": "ready", "message": ""}
            if model in self.breaks:
                row |= {"outcome": "failed", "code": "ENGINE_EXITED", "message": "the engine ended with 1"}
            else:
                self.stand_in.add_replica(model, number, node["nodeId"], gpus=node["gpus"],
                                          spec_hash=action["specHash"])
            rows.append(row)
        self.steps.append(" ".join(done))
        code = 3 if any(row["outcome"] == "failed" for row in rows) else 0
        return [("SUCCEEDED", event(0, "planAccepted", **request["record"]) + summary(1, *rows, code=code))]

    def _end(self, request: dict[str, Any]) -> Steps:
        self.steps.append(" ".join(f"-{one['model']}/{one['replicaId']}" for one in request["replicas"]))
        names = {actor_name(one["model"], one["replicaId"]) for one in request["replicas"]}
        self.stand_in.actors = [actor for actor in self.stand_in.actors if actor["name"] not in names]
        rows = [{"model": one["model"], "replicaId": one["replicaId"], "outcome": "gone", "nodes": one["nodes"],
                 "message": ""} for one in request["replicas"]]
        return [("SUCCEEDED", event(0, "runSummary", "done", outcomes=rows, exitCode=0))]


@pytest.fixture
def acting(cluster: ClusterStandIn) -> ActingCluster:
    cluster.on_submit = made = ActingCluster(cluster)
    return made


def fleet_of(path: Path, *models: str, gpus: int = 1, replicas: int = 1, **policy: Any) -> Path:
    """Write a fleet of these models, each with as many replicas."""
    member = {"resources": {"gpus": gpus}, "engine": {"command": ["serve"]}}
    path.write_text(json.dumps({
        "apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"},
        "spec": {**({"policy": policy} if policy else {}), "models": [
            {"key": key, "replicas": replicas, "labels": {"team": key[0]},
             "workers": [{"name": "main", "members": [member]}]} for key in models]}}))
    return path


def run_outdated(acting: ActingCluster, *models: str, count: int = 1, gpus: int = 1) -> None:
    for index, model in enumerate(models):
        for number in range(count):
            node = acting.stand_in.nodes[(index * count + number) * gpus // 8]["node_id"]
            acting.stand_in.add_replica(model, number, node, gpus=gpus * 10_000, spec_hash="old")


def outdated(acting: ActingCluster) -> set[str]:
    return {actor["name"].split(":", 1)[1] for actor in acting.stand_in.actors if "old" in actor["repr_name"]}


def test_models_are_updated_a_few_at_a_time_and_none_ever_has_fewer_ready_replicas(
    cli, acting: ActingCluster, tmp_path: Path
) -> None:
    run_outdated(acting, "a", "b", "c", count=2)
    words = ("rollout", "-f", fleet_of(tmp_path / "f.yaml", "a", "b", "c", replicas=2), "--yes", "--at-once", "2")
    result = cli(*words, "--format", "json")
    assert result.code == 0, result.err
    assert acting.steps == ["+a/2 +b/2", "-a/0 -b/0", "+a/3 +b/3", "-a/1 -b/1", "+c/2", "-c/0", "+c/3", "-c/1"]
    assert all(min(ready.values()) == 2 and sum(ready.values()) <= 8 for ready in acting.ready)
    assert Counter(row["outcome"] for row in json.loads(result.out)["outcomes"]) == {"ready": 6, "gone": 6}
    again = cli(*words)
    assert (again.code, len(acting.steps)) == (0, 8)
    assert "nothing to roll out: 3 models, none has outdated replicas" in again.err


def test_a_model_that_fails_keeps_its_replicas_and_the_others_go_on(
    cli, acting: ActingCluster, tmp_path: Path
) -> None:
    run_outdated(acting, "a", "b", "c")
    acting.breaks = {"b"}
    result = cli("rollout", "-f", fleet_of(tmp_path / "f.yaml", "a", "b", "c"), "--yes")
    assert result.code == 3
    assert outdated(acting) == {"b:0"}
    assert "b keeps its outdated replicas: a new one is not ready" in result.err
    assert "Rollout: 2 ready, 2 gone, 1 failed" in result.out
    acting.breaks = set()
    assert cli("rollout", "-f", tmp_path / "f.yaml", "--yes").code == 0
    assert outdated(acting) == set()


def test_a_model_without_room_is_blocked_and_the_others_go_on(cli, acting: ActingCluster, tmp_path: Path) -> None:
    acting.stand_in.add_replica("big", 0, acting.stand_in.nodes[0]["node_id"], gpus=80_000, spec_hash="old")
    acting.stand_in.add_replica("a", 0, acting.stand_in.nodes[1]["node_id"], gpus=10_000, spec_hash="old")
    file = fleet_of(tmp_path / "f.yaml", "big", "a", gpus=8)
    text = json.loads(file.read_text())
    text["spec"]["models"][1]["workers"][0]["members"][0]["resources"]["gpus"] = 1
    file.write_text(json.dumps(text))
    shown = cli("rollout", "-f", file, "--dry-run")
    assert (shown.code, acting.steps) == (3, [])
    assert "UPDATE_NEEDS_ROOM" in shown.out
    result = cli("rollout", "-f", file, "--yes", "--format", "json")
    assert result.code == 3
    found = {(row["model"], row["outcome"], row.get("code")) for row in json.loads(result.out)["outcomes"]}
    assert found == {("big", "blocked", "UPDATE_NEEDS_ROOM"), ("a", "ready", None), ("a", "gone", None)}
    assert outdated(acting) == {"big:0"}


def test_protected_and_paused_models_are_skipped_and_named(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, "a", "b", "c")
    acting.stand_in.records.add("pause", record(
        "lab/b", "2026-03-04T12:00:00.000Z", verb="pause", fleet="lab", namespace="fleet", model="b"))
    file = fleet_of(tmp_path / "f.yaml", "a", "b", "c", protectedModels=["c"])
    result = cli("rollout", "-f", file, "--yes", "--format", "json")
    rows = {row["model"]: (row["outcome"], row.get("code")) for row in json.loads(result.out)["outcomes"]}
    assert rows == {"a": ("gone", None), "b": ("blocked", "PAUSED"), "c": ("blocked", "PROTECTED")}
    assert (result.code, outdated(acting)) == (3, {"b:0", "c:0"})
    assert "c keeps its outdated replicas: " in result.err


@pytest.mark.parametrize(("words", "updated"), [
    (("a",), {"a"}), (("a", "c"), {"a", "c"}), (("--selector", "team=b"), {"b"}), (("a", "-l", "team=b"), set())])
def test_only_the_models_that_are_named_or_chosen_are_updated(
    cli, acting: ActingCluster, tmp_path: Path, words: tuple[str, ...], updated: set[str]
) -> None:
    run_outdated(acting, "a", "b", "c")
    assert cli("rollout", *words, "-f", fleet_of(tmp_path / "f.yaml", "a", "b", "c"), "--yes").code == 0
    assert outdated(acting) == {f"{key}:0" for key in {"a", "b", "c"} - updated}


def test_it_lists_what_it_would_do_and_asks_once(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, "a", "b")
    file = fleet_of(tmp_path / "f.yaml", "a", "b")
    for result, code in ((cli("rollout", "-f", file, typed="n\n"), 1), (cli("rollout", "-f", file, "--dry-run"), 0)):
        assert (result.code, acting.steps) == (code, [])
        for text in ("a/0", "b/0", "a: 0 current of 1, 1 outdated; at most 1 beyond the target at a time",
                     "2 models, at most 2 at a time"):
            assert text in result.err
    assert cli("rollout", "-f", file).code == 64, "there is no terminal, and no --yes"
    unknown = cli("rollout", "aa", "-f", file, "--yes")
    assert "aa" in unknown.err
    assert cli("rollout", "-f", file, typed="y\n").code == 0


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(1, 7))
def test_a_rollout_killed_at_any_step_and_run_again_has_the_same_end(
    cli, acting: ActingCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, is_done: bool
) -> None:
    left = [step]

    def dying(act: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and not is_done:
                raise KeyboardInterrupt
            found = act(*given)
            if left[0] == 0:
                raise KeyboardInterrupt
            return found
        return run

    run_outdated(acting, "a", "b", "c", count=2)
    acting.breaks = {"b"}
    words = ("rollout", "-f", fleet_of(tmp_path / "f.yaml", "a", "b", "c", replicas=2), "--yes")
    with monkeypatch.context() as patch:
        for name in ("carry_out", "act_on"):
            patch.setattr(rollout_module, name, dying(getattr(rollout_module, name)))
        assert cli(*words).code == 130
    assert cli(*words).code == 3
    assert outdated(acting) == {"b:0", "b:1"}
    assert all(min(ready.values()) >= 2 for ready in acting.ready)
    assert Counter(actor["name"].split(":")[1] for actor in acting.stand_in.actors) == {"a": 2, "b": 2, "c": 2}


def test_a_policy_that_allows_less_than_a_batch_is_kept_model_by_model(
    cli, acting: ActingCluster, tmp_path: Path
) -> None:
    run_outdated(acting, "a", "b")
    file = fleet_of(tmp_path / "f.yaml", "a", "b", maxNewReplicas=1)
    assert cli("rollout", "-f", file, "--yes").code == 0
    assert acting.steps == ["+a/1", "+b/1", "-a/0 -b/0"]


def test_the_history_has_one_row_per_rollout(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, "a", "b")
    assert cli("rollout", "-f", fleet_of(tmp_path / "f.yaml", "a", "b"), "--yes").code == 0
    [row] = [line for line in cli("history").out.splitlines() if " ok " in line]
    assert " rollout " in row
    assert "2 ready, 2 gone" in row
