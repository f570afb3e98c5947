"""The verbs and a model with variants: what takes whose place is said first, and every answer names the variant."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, Steps, event, summary
from cluster_stand_in import ready as ready_row

from fleetctl.agent.report import actor_name
from fleetctl.cli import replace as replace_module
from fleetctl.doctor.fleet import members_of
from fleetctl.fleetfile.load import load_fleet

pytestmark = pytest.mark.slow  # whole updates, replica by replica

NODES = {"h100": "node-h", "a100": "node-i"}


class Acting:
    """A cluster of two kinds of nodes whose agents carry out every request; `requests` = those for an eviction."""

    def __init__(self, stand_in: ClusterStandIn, **gpus: int) -> None:
        self.stand_in, self.requests, self.failing = stand_in, list[dict[str, Any]](), set[str]()
        stand_in.nodes.clear()
        self.nodes = {kind: stand_in.add_node(NODES[kind], gpus=count, kind=kind) for kind, count in gpus.items()}
        self.least = Counter[str]()
        stand_in.on_submit = self

    def __call__(self, request: dict[str, Any]) -> Steps:
        if "plan" not in request:
            self.requests.append(request)
            rows = [self._end(one) for one in request["replicas"]]
            return [("SUCCEEDED", event(0, "runSummary", "done", outcomes=rows, exitCode=0))]
        rows = [self._create(one) for one in request["plan"]["actions"]]
        rows += [{key: row[key] for key in ("model", "code", "message", "replicas")} | {"outcome": "blocked"}
                 for row in request["plan"]["blocked"]]
        code = 3 if any(row["outcome"] in ("failed", "blocked") for row in rows) else 0
        begun = event(0, "version") + event(1, "planAccepted", **request["record"])
        return [("SUCCEEDED", begun + summary(2, *rows, code=code))]

    def _create(self, action: dict[str, Any]) -> dict[str, Any]:
        [member] = action["members"]
        if action["variant"] in self.failing:
            return {"model": action["model"], "replicaId": action["replicaId"], "outcome": "failed", "nodes": [],
                    "code": "ENGINE_EXITED", "message": "the engine ended with 1", "variant": action["variant"]}
        self.stand_in.add_replica(action["model"], action["replicaId"], member["nodeId"], gpus=member["gpus"],
                                  spec_hash=action["specHash"], variant=action["variant"])
        return {**ready_row(action["model"], action["replicaId"], member["node"]), "variant": action["variant"]}

    def _end(self, one: dict[str, Any]) -> dict[str, Any]:
        name = actor_name(one["model"], one["replicaId"])
        self.stand_in.actors = [actor for actor in self.stand_in.actors if actor["name"] != name]
        return {"model": one["model"], "replicaId": one["replicaId"], "outcome": "gone", "nodes": one["nodes"],
                "message": "", "variant": one.get("variant")}

    def add(self, number: int, kind: str, spec_hash: str = "old", gpus: int = 1) -> None:
        self.stand_in.add_replica("m", number, self.nodes[kind], gpus=gpus * 10_000, spec_hash=spec_hash, variant=kind)

    def running(self) -> dict[int, str]:
        return {int(actor["name"].rpartition(":")[2]): json.loads(actor["repr_name"])["variant"]
                for actor in self.stand_in.actors if actor["state"] == "ALIVE"}


def fleet(path: Path, replicas: int, *, update: dict[str, Any] | None = None, **variants: dict[str, Any]) -> Path:
    model = {"key": "m", "replicas": replicas, **({"update": update} if update else {}), "variants": [
        {"name": name, **more, "workers": [{"name": "main", "members": [
            {"resources": {"gpus": 1}, "nodeSelector": {"kind": name}, "engine": {"command": ["serve", name]}}]}]}
        for name, more in variants.items()]}
    path.write_text(json.dumps({"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"},
                                "spec": {"models": [model]}}))
    return path


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def full(cluster: ClusterStandIn) -> Acting:
    """Two old replicas on all of the H100s, and two free A100s."""
    made = Acting(cluster, h100=2, a100=2)
    made.add(0, "h100")
    made.add(1, "h100")
    return made


@pytest.mark.parametrize("words", [["replace", "m"], ["rollout"]])
def test_what_takes_whose_place_is_said_before_the_question(
        cli, full: Acting, tmp_path: Path, words: list[str]) -> None:
    file = fleet(tmp_path / "f.yaml", 2, h100={}, a100={})
    said = "note: m/0 (h100) is replaced by m/2 as a100: there is no room for another h100"
    for flags in (["--dry-run"], []):
        result = cli(*words, "-f", file, *flags)
        assert said in plain(result.err), result.err
        assert "m/0 (fleet lab, h100, ready, on node-h)" in result.err
    assert full.running() == {0: "h100", 1: "h100"}
    result = cli(*words, "-f", file, "--yes", "--format", "json")
    assert result.code == 0, result.err
    assert full.running() == {2: "a100", 3: "h100"}, "the second one has room for its own variant again"
    assert plain(result.err).count("is replaced by") == 2, "before the question, and before the step"
    rows = [(row["outcome"], row["replicaId"], row["variant"]) for row in json.loads(result.out)["outcomes"]]
    assert rows == [("ready", 2, "a100"), ("gone", 0, "h100"), ("ready", 3, "h100"), ("gone", 1, "h100")]


def test_a_dry_run_of_a_rollout_names_the_variant_of_each_row(cli, full: Acting, tmp_path: Path) -> None:
    result = cli("rollout", "-f", fleet(tmp_path / "f.yaml", 2, h100={}, a100={}), "--dry-run", "--format", "json")
    assert [(row["replicaId"], row["variant"], row["code"], row["message"])
            for row in json.loads(result.out)["outcomes"]] == [
        (0, "h100", "DRY_RUN", "it would be replaced by m/2 as a100"), (1, "h100", "DRY_RUN", "it would be replaced")]


def test_a_variant_that_cools_down_is_the_reason_for_another_one(
        cli, cluster: ClusterStandIn, tmp_path: Path) -> None:
    file = fleet(tmp_path / "f.yaml", 1, h100={}, a100={})
    [model] = load_fleet([str(file)]).models
    acting = Acting(cluster, h100=4, a100=4)
    acting.add(0, "h100")
    for _ in range(3):
        cluster.add_failure("m", acting.nodes["h100"], model.variants[0].spec_hash, "CUDA out of memory")
    for words in (["replace", "m"], ["rollout"]):
        result = cli(*words, "-f", file, "--dry-run")
        assert "m/0 (h100) is replaced by m/1 as a100: h100 cools down" in plain(result.err), result.err


@pytest.mark.parametrize("words", [["replace", "m"], ["rollout"]])
def test_only_the_changed_variant_is_replaced(cli, cluster: ClusterStandIn, tmp_path: Path, words: list[str]) -> None:
    file = fleet(tmp_path / "f.yaml", 2, h100={}, a100={})
    [model] = load_fleet([str(file)]).models
    acting = Acting(cluster, h100=4, a100=4)
    acting.add(0, "h100", model.variants[0].spec_hash)
    acting.add(1, "a100")
    assert cli(*words, "-f", file, "--yes").code == 0
    assert acting.running() == {0: "h100", 2: "a100"}


@pytest.mark.parametrize("words", [["replace", "m"], ["rollout"]])
def test_a_replica_of_a_variant_that_left_the_file_becomes_one_that_is_left(
        cli, cluster: ClusterStandIn, tmp_path: Path, words: list[str]) -> None:
    acting = Acting(cluster, h100=2, a100=2)
    acting.add(0, "h100")
    file = fleet(tmp_path / "f.yaml", 1, a100={})
    dry = cli(*words, "-f", file, "--dry-run")
    assert "m/0 (h100, which has left the file) is replaced by m/1 as a100" in plain(dry.err)
    assert cli(*words, "-f", file, "--yes").code == 0
    assert acting.running() == {1: "a100"}


@pytest.mark.parametrize("words", [["replace", "m"], ["rollout"]])
def test_the_minimum_of_a_variant_holds_and_the_agent_is_told(
        cli, cluster: ClusterStandIn, tmp_path: Path, words: list[str]) -> None:
    acting = Acting(cluster, h100=2, a100=2)
    acting.add(0, "a100")
    acting.add(1, "a100")
    file = fleet(tmp_path / "f.yaml", 2, h100={}, a100={"min": 2})
    blocked = cli(*words, "-f", file, "--yes", "--format", "json")
    [row] = json.loads(blocked.out)["outcomes"]
    assert (blocked.code, row["outcome"], acting.running()) == (3, "blocked", {0: "a100", 1: "a100"})
    assert "needs 1 free GPU" in row["message"]
    assert "h100" not in row["message"], "one of another variant would not help"
    cluster.nodes[1]["resources_total"]["GPU"] = 3.0
    assert cli(*words, "-f", file, "--yes").code == 0
    assert acting.running() == {2: "a100", 3: "a100"}
    [kept] = acting.requests[0]["keepOfEach"]
    assert (kept["model"], kept["variant"], kept["least"], len(kept["actors"])) == ("m", "a100", 2, 3)


@pytest.mark.parametrize("words", [["replace", "m"], ["rollout"]])
def test_a_model_that_wants_only_the_minimum_of_a_variant_is_replaced(
        cli, cluster: ClusterStandIn, tmp_path: Path, words: list[str]) -> None:
    acting = Acting(cluster, h100=2, a100=2)
    acting.add(0, "a100")
    acting.add(1, "h100")
    acting.add(2, "h100")
    file = fleet(tmp_path / "f.yaml", 0, h100={}, a100={"min": 1})
    result = cli(*words, "-f", file, "--yes")
    assert result.code == 0, result.err
    assert "m: 3 replicas run and the file wants 1: 1 are left after the update" in plain(result.err)
    assert list(acting.running().values()) == ["a100"]
    assert acting.running() != {0: "a100"}


def test_two_models_that_share_the_cards_are_rolled_out_together(
        cli, cluster: ClusterStandIn, tmp_path: Path) -> None:
    acting = Acting(cluster, h100=2, a100=1)
    file = fleet(tmp_path / "f.yaml", 1, h100={}, a100={})
    document = json.loads(file.read_text())
    [model] = document["spec"]["models"]
    document["spec"]["models"] = [{**model, "key": key} for key in ("m", "n")]
    file.write_text(json.dumps(document))
    for key in ("m", "n"):
        cluster.add_replica(key, 0, acting.nodes["h100"], gpus=10_000, spec_hash="old", variant="h100")
    result = cli("rollout", "-f", file, "--yes")
    assert result.code == 0, result.err
    now = {actor["name"].partition(":")[2]: json.loads(actor["repr_name"])["variant"] for actor in cluster.actors}
    assert now == {"m:1": "a100", "n:1": "h100"}
    assert plain(result.err).count("m/0 (h100) is replaced by m/1 as a100: there is no room for another h100") == 2


def test_a_new_spec_that_fails_stops_its_variant_alone_and_nothing_ends(cli, full: Acting, tmp_path: Path) -> None:
    full.failing = {"a100"}
    result = cli("rollout", "-f", fleet(tmp_path / "f.yaml", 2, h100={}, a100={}), "--yes", "--format", "json")
    assert (result.code, full.running()) == (3, {0: "h100", 1: "h100"})
    assert [(row["code"], row["variant"]) for row in json.loads(result.out)["outcomes"]] == [("ENGINE_EXITED", "a100")]


def test_in_place_the_same_variant_comes_back(cli, full: Acting, tmp_path: Path) -> None:
    file = fleet(tmp_path / "f.yaml", 2, a100={}, h100={})
    assert cli("replace", "m", "-f", file, "--yes", "--in-place").code == 0
    assert full.running() == {2: "h100", 3: "h100"}


def test_a_drain_says_which_variant_takes_the_place(cli, full: Acting, tmp_path: Path) -> None:
    file = fleet(tmp_path / "f.yaml", 2, h100={}, a100={})
    [model] = load_fleet([str(file)]).models
    full.stand_in.actors.clear()
    full.add(0, "h100", model.variants[0].spec_hash)
    dry = cli("drain", "node-h", "--evict", "--dry-run", "-f", file)
    assert dry.code == 0, dry.err
    assert "note: m/0 (h100) is replaced by m/1 as a100: there is no room for another h100" in plain(dry.err)
    done = cli("drain", "node-h", "--evict", "-f", file, "--yes", "--format", "json")
    assert (done.code, full.running()) == (0, {1: "a100"})
    assert [(row["outcome"], row["variant"]) for row in json.loads(done.out)["outcomes"]] == [
        ("ready", "a100"), ("gone", "h100")]


def test_evict_and_restart_name_the_variant(cli, full: Acting) -> None:
    for verb in ("evict", "restart"):
        assert f"{'end' if verb == 'evict' else verb}: m/0 (fleet lab, h100, ready, on node-h)" in cli(
            verb, "m", "--dry-run").err
    [row] = json.loads(cli("evict", "m/0", "--yes", "--format", "json").out)["outcomes"]
    assert (row["outcome"], row["variant"]) == ("gone", "h100")
    assert [one["variant"] for one in full.requests[0]["replicas"]] == ["h100"]


def test_an_eviction_says_what_the_next_apply_starts_for_the_minimum_of_a_variant(
        cli, full: Acting, tmp_path: Path) -> None:
    full.add(2, "a100")
    file = fleet(tmp_path / "f.yaml", 2, h100={}, a100={"min": 1})
    result = cli("evict", "m/2", "--dry-run", "-f", file)
    assert "m: the fleet file wants 2, 2 stay; the next apply starts 1 replica, 1 as a100 for its minimum" in plain(
        result.err)
    assert "for its minimum" not in cli("evict", "m/0", "--dry-run", "-f", file).err


def test_the_minimums_of_variants_ask_for_no_more_than_a_number_given_by_hand(
        cli, cluster: ClusterStandIn, tmp_path: Path) -> None:
    acting = Acting(cluster, h100=2, a100=2)
    file = fleet(tmp_path / "f.yaml", 2, h100={}, a100={"min": 2})
    assert cli("deploy", "m", "-f", file, "--yes").code == 0
    assert acting.running() == {0: "a100"}
    assert cli("scale", "m", "--replicas", "2", "-f", file, "--yes").code == 0
    assert acting.running() == {0: "a100", 1: "a100"}
    full = cli("scale", "m", "--replicas", "9", "-f", file, "--yes", "--format", "json")
    assert (full.code, len(acting.running())) == (3, 4)


def test_more_than_the_maximum_of_a_single_variant_is_blocked_for_that(
        cli, cluster: ClusterStandIn, tmp_path: Path) -> None:
    acting = Acting(cluster, h100=4)
    file = fleet(tmp_path / "f.yaml", 2, h100={"max": 2})
    result = cli("scale", "m", "--replicas", "4", "-f", file, "--yes", "--format", "json")
    rows = json.loads(result.out)["outcomes"]
    assert (result.code, [row["code"] for row in rows if row["outcome"] == "blocked"]) == (3, ["VARIANT_FULL"])
    assert acting.running() == {0: "h100", 1: "h100"}


def test_the_rest_of_an_update_is_a_surge_of_the_model_whatever_the_variant(
        cli, full: Acting, tmp_path: Path) -> None:
    file = fleet(tmp_path / "f.yaml", 2, update={"mode": "surge", "surge": 1}, h100={}, a100={})
    plan = json.loads(cli("plan", "-f", file, "--format", "json").out)
    assert [(one["replicaId"], one["variant"]) for one in plan["actions"]] == [(2, "a100")]
    assert cli("apply", "-f", file, "--yes").code == 0
    again = json.loads(cli("plan", "-f", file, "--format", "json").out)
    assert (again["actions"], again["exitCode"]) == ([], 0)
    assert full.running() == {0: "h100", 1: "h100", 2: "a100"}


def test_a_model_with_minimums_alone_is_wanted(cli, cluster: ClusterStandIn, tmp_path: Path) -> None:
    acting = Acting(cluster, h100=2)
    file = fleet(tmp_path / "f.yaml", 0, h100={"min": 2}, a100={})
    assert "no replica of m runs; the fleet file wants 2" in plain(cli("status", "m", "-f", file).err)
    assert "1 model, 2 replicas wanted" in cli("validate", file).err
    assert [member.engine.command[1] for _, member in members_of(load_fleet([str(file)]))] == ["h100", "a100"]
    assert cli("apply", "-f", file, "--yes").code == 0
    assert acting.running() == {0: "h100", 1: "h100"}


def replace_killed(cli, full: Acting, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a replace in place whose process ends after it has ended a replica, and before it creates one."""
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(replace_module.ModelUpdate, "create", killed)
        assert cli("replace", "m", "-f", file, "--yes", "--in-place").code == 130
    assert full.running() == {1: "h100"}
    full.stand_in.jobs[next(job for job in full.stand_in.jobs if "evict" in job)].start_time = 4102444800000


def test_a_replace_in_place_that_was_killed_is_continued_with_the_variant_that_had_ended(
        cli, full: Acting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = fleet(tmp_path / "f.yaml", 2, a100={}, h100={})
    replace_killed(cli, full, file, monkeypatch)
    result = cli("replace", "m", "-f", file, "--yes", "--in-place")
    assert (result.code, full.running()) == (0, {2: "h100", 3: "h100"}), result.err


def test_an_apply_after_a_killed_replace_fills_up_by_the_preference_of_the_file(
        cli, full: Acting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = fleet(tmp_path / "f.yaml", 2, a100={}, h100={})
    replace_killed(cli, full, file, monkeypatch)
    assert cli("apply", "-f", file, "--yes").code == 0
    assert full.running() == {1: "h100", 2: "a100"}


def test_an_end_that_a_new_replica_has_answered_says_nothing_about_a_later_loss(
        cli, full: Acting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replacement has run since, and another replica is gone for another reason."""
    file = fleet(tmp_path / "f.yaml", 2, a100={}, h100={})
    replace_killed(cli, full, file, monkeypatch)
    full.stand_in.jobs[next(job for job in full.stand_in.jobs if "evict" in job)].start_time = 1
    full.add(2, "h100", load_fleet([str(file)]).models[0].variants[1].spec_hash)
    full.stand_in.actors = [actor for actor in full.stand_in.actors if actor["name"] != "ModelActor:m:1"]
    assert cli("replace", "m", "-f", file, "--yes", "--in-place").code == 0
    assert full.running() == {2: "h100", 3: "a100"}


def test_without_its_record_the_minimum_of_the_file_is_filled_first(
        cli, full: Acting, tmp_path: Path) -> None:
    """A replica of the variant with a `min` is gone: what serves when the update begins is no longer its measure."""
    full.stand_in.actors = full.stand_in.actors[1:]
    file = fleet(tmp_path / "f.yaml", 2, a100={}, h100={"min": 2})
    assert cli("replace", "m", "-f", file, "--yes", "--in-place").code == 0
    assert full.running() == {2: "h100", 3: "h100"}
