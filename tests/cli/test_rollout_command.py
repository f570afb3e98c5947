"""`fleetctl rollout`: many models are updated as by `replace`, a few at a time; a failing one stops alone."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, Steps, event, summary
from cluster_stand_in import ready as ready_row
from record_rows import now, record

from fleetctl.agent.report import actor_name
from fleetctl.cli import replace as replace_module
from fleetctl.cli.rollout import LOCK_TIMEOUT_S

pytestmark = pytest.mark.slow  # whole updates, replica by replica


@dataclass
class Rolling:
    """A cluster whose agents carry out every request. `failing` = models whose new replicas fail.

    `turns` = the models of each request, `keeps` = the least ready replicas in each eviction.
    """

    stand_in: ClusterStandIn
    failing: set[str] = field(default_factory=set)
    turns: list[tuple[str, list[str]]] = field(default_factory=list)
    keeps: list[dict[str, int]] = field(default_factory=list)
    least: Counter[str] = field(default_factory=Counter)

    def __call__(self, request: dict[str, Any]) -> Steps:
        create = "plan" in request
        asked = request["plan"]["actions"] if create else request["replicas"]
        self.turns.append(("create" if create else "end", [one["model"] for one in asked]))
        rows = [self._create(one) for one in asked] if create else [self._end(one) for one in asked]
        if not create:
            self.keeps.append(request["keep"])
        for model, count in self.counts().items():
            self.least[model] = min(self.least.get(model, count), count)
        code = 3 if any(row["outcome"] == "failed" for row in rows) else 0
        if not create:
            return [("SUCCEEDED", event(0, "runSummary", "done", outcomes=rows, exitCode=code))]
        begun = event(0, "version") + event(1, "planAccepted", **request["record"])
        return [("SUCCEEDED", begun + summary(2, *rows, code=code))]

    def _create(self, action: dict[str, Any]) -> dict[str, Any]:
        model, number = action["model"], action["replicaId"]
        if model in self.failing:
            return {"model": model, "replicaId": number, "outcome": "failed", "nodes": [], "code": "ENGINE_EXITED",
                    "message": "the engine ended with 1"}
        node = action["members"][0]
        self.stand_in.add_replica(model, number, node["nodeId"], gpus=node["gpus"], spec_hash=action["specHash"])
        return ready_row(model, number)

    def _end(self, one: dict[str, Any]) -> dict[str, Any]:
        name = actor_name(one["model"], one["replicaId"])
        self.stand_in.actors = [actor for actor in self.stand_in.actors if actor["name"] != name]
        return {"model": one["model"], "replicaId": one["replicaId"], "outcome": "gone", "nodes": [], "message": ""}

    def counts(self) -> Counter[str]:
        return Counter(actor["name"].split(":")[1] for actor in self.stand_in.actors if actor["state"] == "ALIVE")

    def outdated(self) -> list[str]:
        return sorted(actor["name"].partition(":")[2] for actor in self.stand_in.actors if "old" in actor["repr_name"])


@pytest.fixture
def rolling(cluster: ClusterStandIn) -> Rolling:
    cluster.on_submit = made = Rolling(cluster)
    return made


def fleet_with(path: Path, gpus: int = 1, policy: dict[str, Any] | None = None, **models: int) -> Path:
    path.write_text(json.dumps({"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"}, "spec": {
        **({"policy": policy} if policy else {}),
        "models": [{"key": key, "replicas": count, "labels": {"team": key[0]}, "workers": [{"name": "main", "members": [
            {"resources": {"gpus": gpus}, "engine": {"command": ["serve"]}}]}]} for key, count in models.items()]}}))
    return path


def run_old(rolling: Rolling, gpus: int = 1, node: int = 0, **models: int) -> None:
    for key, count in models.items():
        for number in range(count):
            rolling.stand_in.add_replica(key, number, rolling.stand_in.nodes[node]["node_id"], gpus=gpus * 10_000,
                                         spec_hash="old")


def test_all_outdated_models_are_replaced_a_bounded_number_at_a_time(cli, rolling: Rolling, tmp_path: Path) -> None:
    run_old(rolling, a=2, b=1, c=1)
    result = cli("rollout", "-f", fleet_with(tmp_path / "f.yaml", a=2, b=1, c=1), "--yes", "--at-once", "2",
                 "--format", "json")
    assert result.code == 0, result.err
    assert rolling.turns == [("create", ["a", "b"]), ("end", ["a", "b"]), ("create", ["a", "c"]), ("end", ["a", "c"])]
    assert rolling.keeps == [{"a": 2, "b": 1}, {"a": 2, "c": 1}], "the agent checks again just before each end"
    assert (rolling.outdated(), rolling.counts(), rolling.least) == ([], {"a": 2, "b": 1, "c": 1},
                                                                    {"a": 2, "b": 1, "c": 1})
    assert "4 outdated replicas of 3 models (a, b, c), 2 models at a time" in result.err
    assert re.findall("note: (.) of 3 models done; next: (.*)", result.err) == [
        ("0", "start new replicas of a, b"), ("0", "end an outdated replica of a, b"),
        ("1", "start new replicas of a, c"), ("1", "end an outdated replica of a, c")]
    done = json.loads(result.out)
    assert (done["exitCode"], Counter(row["outcome"] for row in done["outcomes"])) == (0, {"ready": 4, "gone": 4})
    again = cli("rollout", "-f", tmp_path / "f.yaml", "--yes")
    assert (again.code, len(rolling.turns)) == (0, 4)
    assert "nothing is outdated" in again.err


def test_a_failing_model_keeps_its_replicas_and_the_others_go_on(cli, rolling: Rolling, tmp_path: Path) -> None:
    run_old(rolling, a=1, b=2, c=1)
    rolling.failing = {"b"}
    result = cli("rollout", "-f", fleet_with(tmp_path / "f.yaml", a=1, b=2, c=1), "--yes", "--format", "jsonl")
    assert (result.code, rolling.outdated(), rolling.counts()) == (3, ["b:0", "b:1"], {"a": 1, "b": 2, "c": 1})
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["seq"] for line in lines] == list(range(len(lines)))
    assert (lines[0]["type"], lines[-1]["type"], lines[-1]["exitCode"]) == ("version", "runSummary", 3)
    assert [row["code"] for row in lines[-1]["outcomes"] if row["outcome"] == "failed"] == ["ENGINE_EXITED"]
    rolling.failing = set()
    again = cli("rollout", "-f", tmp_path / "f.yaml", "--yes", "--ignore-cooldown")
    assert (again.code, rolling.outdated(), rolling.counts()) == (0, [], {"a": 1, "b": 2, "c": 1})


@pytest.mark.parametrize("stage", range(8))
def test_a_run_killed_before_or_after_any_step_is_continued_by_the_next_one(
    cli, rolling: Rolling, tmp_path: Path, stage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_old(rolling, a=1, b=1, c=1)
    fleet = fleet_with(tmp_path / "f.yaml", a=1, b=1, c=1)
    passed = iter(range(8))

    def killed_around(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            if next(passed) == stage:
                raise KeyboardInterrupt
            done = step(*arguments)
            if next(passed) == stage:
                raise KeyboardInterrupt
            return done
        return run

    with monkeypatch.context() as patched:
        for name in ("carry_out", "act_on"):
            patched.setattr(replace_module, name, killed_around(getattr(replace_module, name)))
        assert cli("rollout", "-f", fleet, "--yes", "--at-once", "2").code == 130
    begun, turns = {key for key, count in rolling.counts().items() if count == 2}, len(rolling.turns)
    result = cli("rollout", "-f", fleet, "--yes", "--at-once", "2")
    assert result.code == 0, result.err
    assert (rolling.outdated(), rolling.counts()) == ([], {"a": 1, "b": 1, "c": 1})
    assert min(rolling.least.values(), default=1) == 1
    assert begun <= {key for _, keys in rolling.turns[turns:turns + 2] for key in keys}, "what was begun comes first"


def test_named_or_selected_models_are_replaced_alone(cli, rolling: Rolling, tmp_path: Path) -> None:
    run_old(rolling, a=1, b=1, c=1)
    fleet = fleet_with(tmp_path / "f.yaml", a=1, b=1, c=1)
    assert cli("rollout", "b", "-f", fleet, "--yes").code == 0
    assert rolling.outdated() == ["a:0", "c:0"]
    assert cli("rollout", "-f", fleet, "--selector", "team=c", "--yes").code == 0
    assert rolling.outdated() == ["a:0"]
    unknown = cli("rollout", "x", "-f", fleet, "--yes")
    assert (unknown.code, "has no model x" in unknown.err) == (1, True)
    none = cli("rollout", "a", "-f", fleet_with(tmp_path / "none.yaml", a=0), "--yes")
    assert (none.code, "hint: `fleetctl evict a` ends them" in none.err) == (64, True)


def test_without_room_a_model_waits_for_the_others_and_is_blocked_if_none_helps(
    cli, rolling: Rolling, tmp_path: Path
) -> None:
    """The free half of the second node is enough for one at a time; no node is empty for one that needs all 8 cards."""
    nodes = rolling.stand_in.nodes
    assert len(nodes) == 2
    run_old(rolling, gpus=4, node=0, a=1, b=1)
    run_old(rolling, gpus=4, node=1, c=1)
    result = cli("rollout", "-f", fleet_with(tmp_path / "f.yaml", gpus=4, a=1, b=1, c=1), "--yes")
    assert (result.code, rolling.outdated()) == (0, []), result.err
    assert min(rolling.least.values()) == 1

    big = cli("rollout", "-f", fleet_with(tmp_path / "g.yaml", gpus=8, a=1), "--yes", "--format", "json")
    [blocked] = json.loads(big.out)["outcomes"]
    assert (big.code, blocked["outcome"], blocked["code"]) == (3, "blocked", "UPDATE_NEEDS_ROOM")
    assert rolling.counts()["a"] == 1


def test_protected_and_paused_models_are_skipped_and_named(cli, rolling: Rolling, tmp_path: Path) -> None:
    run_old(rolling, a=1, b=1, c=1)
    note = {"verb": "pause", "fleet": "lab", "namespace": "fleet", "model": "b"}
    rolling.stand_in.records.add("pause", record("m", now(), **note))
    fleet = fleet_with(tmp_path / "f.yaml", policy={"protectedModels": ["a"]}, a=1, b=1, c=1)
    result = cli("rollout", "-f", fleet, "--yes", "--format", "json")
    rows = {row["model"]: row["code"] for row in json.loads(result.out)["outcomes"] if row["outcome"] == "blocked"}
    assert (result.code, rows) == (3, {"a": "PROTECTED_MODEL", "b": "PAUSED"})
    assert rolling.outdated() == ["a:0", "b:0"]
    place = fleet.read_text().index('"a"]') + 1
    told = f"a is skipped: spec.policy.protectedModels: a at {fleet}:1:{place} protects it"
    assert told in " ".join(result.err.split())


def test_a_replica_that_another_rollout_has_ended_meanwhile_is_no_failure(
    cli, rolling: Rolling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone_before(one: dict[str, Any]) -> dict[str, Any]:
        return {**end(one), "outcome": "failed", "code": "NOT_FOUND", "message": "it is already gone"}

    end = rolling._end
    monkeypatch.setattr(rolling, "_end", gone_before)
    run_old(rolling, a=2)
    result = cli("rollout", "-f", fleet_with(tmp_path / "f.yaml", a=2), "--yes", "--format", "json")
    assert (result.code, rolling.outdated(), rolling.counts()) == (0, [], {"a": 2})
    assert [row["outcome"] for row in json.loads(result.out)["outcomes"]] == ["ready", "ready"]


@pytest.mark.parametrize("words", [["rollout"], ["replace", "a"]])
def test_a_model_with_more_replicas_than_wanted_is_told_to_have_fewer_after_its_update(
    cli, rolling: Rolling, tmp_path: Path, words: list[str]
) -> None:
    run_old(rolling, a=5, b=2)
    fleet = fleet_with(tmp_path / "f.yaml", a=2, b=1)
    for flags in (["--dry-run"], ["--yes"]):
        result = cli(*words, "-f", fleet, *flags)
        assert "a: 5 replicas run and the file wants 2: 2 are left after the update" in " ".join(result.err.split())
        assert "b: 2 replicas run" not in result.err, "one more than wanted is a part of an update"
    assert (rolling.counts()["a"], rolling.least["a"]) == (2, 2)


def test_a_dry_run_names_what_would_be_replaced_and_does_nothing(cli, rolling: Rolling, tmp_path: Path) -> None:
    run_old(rolling, a=2)
    fleet = fleet_with(tmp_path / "f.yaml", a=2)
    result = cli("rollout", "-f", fleet, "--dry-run", "--format", "json")
    assert [(row["replicaId"], row["code"]) for row in json.loads(result.out)["outcomes"]] == [
        (0, "DRY_RUN"), (1, "DRY_RUN")]
    assert (result.code, rolling.turns) == (0, [])
    assert cli("rollout", "-f", fleet, "--dry-run", "--detailed-exitcode").code == 2
    assert cli("rollout", "-f", fleet, "--detailed-exitcode").code == 64
    assert cli("rollout", "-f", fleet_with(tmp_path / "none.yaml", z=1), "--dry-run", "--detailed-exitcode").code == 0
    asked = cli("rollout", "-f", fleet)
    assert (asked.code, "pass --yes" in asked.err, rolling.turns) == (64, True, [])


def test_a_rollout_waits_for_the_lock_by_default_and_is_one_run_of_the_history(
    cli, rolling: Rolling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []
    act = rolling.__call__

    def asked(request: dict[str, Any]) -> Steps:
        waits.append(request["lockTimeout"])
        return act(request)

    rolling.stand_in.on_submit = asked
    run_old(rolling, a=1)
    assert cli("rollout", "-f", fleet_with(tmp_path / "f.yaml", a=1), "--yes").code == 0
    assert waits == [LOCK_TIMEOUT_S] * 2
    assert [" rollout " in line for line in cli("history").out.splitlines() if " ok " in line] == [True]
