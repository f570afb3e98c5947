"""`fleetctl replace`: a new replica is ready before an outdated one ends; it asks first and can be resumed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, Steps, all_ready, event, summary
from record_rows import now, record

from fleetctl.agent.report import actor_name
from fleetctl.cli import replace as replace_module
from fleetctl.fleetfile.load import inspect_fleet, load_fleet

pytestmark = pytest.mark.slow  # whole updates, replica by replica

MODEL = "org/one"


@dataclass
class ActingCluster:
    """A cluster whose agents carry out every request; `ready` = the number of ready replicas after each step."""

    stand_in: ClusterStandIn
    fails: bool = False
    steps: list[str] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    keeps: list[dict[str, int]] = field(default_factory=list)

    def __call__(self, request: dict[str, Any]) -> Steps:
        answer = self._create(request) if "plan" in request else self._end(request)
        self.ready.append(sum(actor["state"] == "ALIVE" for actor in self.stand_in.actors))
        return answer

    def _create(self, request: dict[str, Any]) -> Steps:
        for action in request["plan"]["actions"]:
            self.steps.append(f"+{action['replicaId']}")
            live = len(self.stand_in.actors)
            assert live < action["wanted"], "the agent would refuse it: TARGET_REACHED"
            if self.fails:
                row = {"model": MODEL, "replicaId": action["replicaId"], "outcome": "failed", "nodes": [],
                       "code": "ENGINE_EXITED", "message": "the engine ended with 1"}
                return [("SUCCEEDED", event(0, "planAccepted", **request["record"]) + summary(1, row, code=3))]
            node = action["members"][0]
            self.stand_in.add_replica(MODEL, action["replicaId"], node["nodeId"], gpus=node["gpus"],
                                      spec_hash=action["specHash"])
        return all_ready(request)[-1:]

    def _end(self, request: dict[str, Any]) -> Steps:
        [one] = request["replicas"]
        self.keeps.append(request["keep"])
        self.steps.append(f"-{one['replicaId']}")
        name = actor_name(one["model"], one["replicaId"])
        self.stand_in.actors = [actor for actor in self.stand_in.actors if actor["name"] != name]
        row = {"model": MODEL, "replicaId": one["replicaId"], "outcome": "gone", "nodes": one["nodes"], "message": ""}
        return [("SUCCEEDED", event(0, "runSummary", "done", outcomes=[row], exitCode=0))]


@pytest.fixture
def acting(cluster: ClusterStandIn) -> ActingCluster:
    cluster.on_submit = made = ActingCluster(cluster)
    return made


def fleet_of(path: Path, replicas: int, gpus: int = 4, **more: Any) -> Path:
    model = {"key": MODEL, "replicas": replicas, **more, "workers": [
        {"name": "main", "members": [{"resources": {"gpus": gpus}, "engine": {"command": ["serve"]}}]}]}
    path.write_text(json.dumps({"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"},
                                "spec": {"models": [model]}}))
    return path


def run_outdated(acting: ActingCluster, count: int, gpus: int = 4, state: str = "ALIVE") -> None:
    nodes = acting.stand_in.nodes
    for number in range(count):
        acting.stand_in.add_replica(MODEL, number, nodes[number * gpus // 8]["node_id"], gpus=gpus * 10_000,
                                    spec_hash="old", state=state)


def specs(acting: ActingCluster) -> dict[str, int]:
    """The numbers of current and outdated live replicas."""
    found = [actor["repr_name"] for actor in acting.stand_in.actors]
    old = sum("old" in text for text in found)
    return {"current": len(found) - old, "outdated": old}


def test_replicas_are_replaced_one_at_a_time_and_never_fewer_are_ready_than_wanted(
    cli, acting: ActingCluster, tmp_path: Path
) -> None:
    run_outdated(acting, 3)
    result = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 3), "--yes", "--format", "json")
    assert result.code == 0, result.err
    assert acting.steps == ["+3", "-0", "+4", "-1", "+5", "-2"]
    assert min(acting.ready) == 3
    assert max(acting.ready) == 4
    assert acting.keeps == [{MODEL: 3}] * 3, "the agent checks again just before each end"
    assert [row["outcome"] for row in json.loads(result.out)["outcomes"]] == ["ready", "gone"] * 3
    assert specs(acting) == {"current": 3, "outdated": 0}
    again = cli("replace", MODEL, "-f", tmp_path / "f.yaml", "--yes")
    assert (again.code, len(acting.steps)) == (0, 6)
    assert "nothing to replace, 3 current of 3" in again.err


def test_an_outdated_replica_that_no_longer_answers_ends_first_and_was_not_serving(
    cli, acting: ActingCluster, tmp_path: Path
) -> None:
    run_outdated(acting, 2)
    acting.stand_in.stop_answering(1)
    assert cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 2), "--yes").code == 0
    assert acting.steps == ["+2", "-1", "+3", "-0"]
    assert acting.keeps == [{MODEL: 1}] * 2


def test_an_update_stops_before_fewer_replicas_answer_than_before(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 2)
    create = acting._create

    def create_one_that_stops_answering(request: dict[str, Any]) -> Steps:
        steps = create(request)
        acting.stand_in.stop_answering(-1)
        return steps

    acting._create = create_one_that_stops_answering  # type: ignore[method-assign]
    result = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 2), "--yes")
    assert (result.code, acting.steps) == (3, ["+2"])
    assert f"{MODEL}/0 stays: 1 would serve without it, and 2 must" in result.err


def test_a_replica_that_another_user_has_ended_meanwhile_is_no_failure(
    cli, acting: ActingCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone_before(request: dict[str, Any]) -> Steps:
        [one], [(status, _)] = request["replicas"], end(request)
        row = {"model": MODEL, "replicaId": one["replicaId"], "outcome": "failed", "code": "NOT_FOUND", "nodes": [],
               "message": "it is already gone"}
        return [(status, event(0, "runSummary", "done", outcomes=[row], exitCode=3))]

    end = acting._end
    monkeypatch.setattr(acting, "_end", gone_before)
    run_outdated(acting, 2)
    result = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 2), "--yes", "--format", "json")
    assert (result.code, specs(acting)) == (0, {"current": 2, "outdated": 0}), result.err
    assert [row["outcome"] for row in json.loads(result.out)["outcomes"]] == ["ready", "ready"]


def test_the_history_has_one_row_per_replace_and_its_steps_by_id(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 2)
    fleet = fleet_of(tmp_path / "f.yaml", 2)
    assert cli("replace", MODEL, "-f", fleet, "--yes").code == 0
    assert cli("evict", f"{MODEL}/2", "--yes").code == 0
    result = [line for line in cli("history").out.splitlines() if " ok " in line]
    assert [("2 ready, 2 gone" in line, " replace " in line, " evict " in line) for line in result] == [
        (False, False, True), (True, True, False)]
    runs = json.loads(cli("history", "--format", "json").out)["runs"]
    assert [run["verb"] for run in runs] == ["evict", "evict", "apply", "evict", "apply"]
    [whole] = {run["stepOf"] for run in runs[1:]}
    several = cli("history", "show", whole)
    assert several.code == 1
    assert "matches 4 runs" in several.err
    assert "these are steps of one command" in several.err


def test_outdated_replicas_are_listed_by_name_and_node_before_the_question(
    cli, acting: ActingCluster, tmp_path: Path
) -> None:
    run_outdated(acting, 3)
    fleet = fleet_of(tmp_path / "f.yaml", 3)
    for result, code in ((cli("replace", MODEL, "-f", fleet, typed="n\n"), 1),
                        (cli("replace", MODEL, "-f", fleet, "--dry-run"), 0)):
        assert result.code == code
        assert f"replace: {MODEL}/0 (fleet lab, ready, on node-a)" in result.err
        assert f"replace: {MODEL}/2 (fleet lab, ready, on node-b)" in result.err
        assert "0 current of 3, 3 outdated; at most 1 beyond the target at a time" in result.err
        assert acting.stand_in.writes() == []
    assert cli("replace", MODEL, "-f", fleet).code == 64, "there is no terminal, and no --yes"


def test_a_failing_spec_leaves_the_old_replicas_serving_and_exits_with_3(
    cli, acting: ActingCluster, tmp_path: Path
) -> None:
    run_outdated(acting, 2)
    fleet, acting.fails = fleet_of(tmp_path / "f.yaml", 2), True
    result = cli("replace", MODEL, "-f", fleet, "--yes")
    assert result.code == 3
    assert (acting.steps, specs(acting)) == (["+2"], {"current": 0, "outdated": 2})
    assert "ENGINE_EXITED" in result.out
    assert "stopped, 0 current of 2, 2 outdated; live replicas stay" in result.err
    acting.fails = False
    assert cli("replace", MODEL, "-f", fleet, "--yes").code == 0, "the same command continues"
    assert specs(acting) == {"current": 2, "outdated": 0}


def test_a_replace_continues_after_an_earlier_run(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 2)
    fleet = fleet_of(tmp_path / "f.yaml", 2)
    [model] = inspect_fleet([str(fleet)]).sound().models
    acting.stand_in.add_replica(MODEL, 2, acting.stand_in.nodes[1]["node_id"], gpus=40_000, spec_hash=model.spec_hash)
    assert cli("replace", MODEL, "-f", fleet, "--yes").code == 0
    assert acting.steps == ["-0", "+3", "-1"]


def test_without_room_replace_stops_and_in_place_ends_one_replica_first(
    cli, acting: ActingCluster, tmp_path: Path
) -> None:
    run_outdated(acting, 4)
    fleet = fleet_of(tmp_path / "f.yaml", 4)
    full = cli("replace", MODEL, "-f", fleet, "--yes", "--format", "json")
    assert (full.code, acting.steps) == (3, [])
    [row] = json.loads(full.out)["outcomes"]
    assert row["code"] == "UPDATE_NEEDS_ROOM"
    assert "without one of them 3 of 4 would serve" in row["message"]

    result = cli("replace", MODEL, "-f", fleet, "--yes", "--in-place")
    assert result.code == 0, result.err
    assert "so 3 of 4 serve" in result.err
    assert acting.steps == ["-0", "+4", "-1", "+5", "-2", "+6", "-3", "+7"]
    assert min(acting.ready) == 3


def test_in_place_refuses_an_outage_unless_it_is_allowed(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 1, gpus=8)
    fleet = fleet_of(tmp_path / "f.yaml", 1, gpus=8)
    result = cli("replace", MODEL, "-f", fleet, "--yes", "--in-place")
    assert (result.code, acting.steps) == (1, [])
    assert "no replica would serve while the new one starts" in result.err
    assert cli("replace", MODEL, "-f", fleet, "--yes", "--in-place", "--allow-outage").code == 0
    assert acting.steps == ["-0", "+0"]


def test_in_place_ends_nothing_if_the_new_spec_would_not_fit(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 4)
    result = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 4, gpus=8), "--yes", "--in-place")
    assert (result.code, acting.steps) == (1, [])
    assert "would not fit in place of an outdated one: needs 8 free GPUs" in result.err


def test_in_place_ends_nothing_if_the_policy_forbids_the_replacement(
        cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 4)
    fleet = fleet_of(tmp_path / "f.yaml", 4)
    document = json.loads(fleet.read_text())
    document["spec"]["policy"] = {"maxNewGpus": 3}
    fleet.write_text(json.dumps(document))
    words = ("replace", MODEL, "-f", fleet, "--yes", "--in-place")
    result = cli(*words)
    assert (result.code, acting.steps) == (4, []), result.err
    assert "against spec.policy.maxNewGpus: 3" in result.err
    assert cli(*words, "--force").code == 0


def test_in_place_ends_nothing_during_a_cooldown_unless_it_is_ignored(
    cli, acting: ActingCluster, tmp_path: Path
) -> None:
    run_outdated(acting, 2)
    fleet, stand_in = fleet_of(tmp_path / "f.yaml", 2), acting.stand_in
    [model] = load_fleet([str(fleet)]).models
    for node in (*stand_in.nodes, stand_in.nodes[0]):
        stand_in.add_failure(MODEL, node["node_id"], model.spec_hash, "CUDA out of memory")
    words = ("replace", MODEL, "-f", fleet, "--yes", "--in-place")
    result = cli(*words)
    assert (result.code, acting.steps) == (1, [])
    assert "cooling until" in result.err
    assert cli(*words, "--ignore-cooldown").code == 0


@pytest.mark.parametrize("more", [(), ("--in-place",)], ids=["beside", "in place"])
def test_a_paused_model_is_not_replaced_and_nothing_of_it_ends(
        cli, acting: ActingCluster, tmp_path: Path, more: tuple[str, ...]) -> None:
    run_outdated(acting, 3)  # one more than wanted: an outdated one could end without a new one
    fleet = fleet_of(tmp_path / "f.yaml", 2)
    assert cli("pause", MODEL, "--reason", "bad answers").code == 0
    result = cli("replace", MODEL, "-f", fleet, "--yes", "--format", "json", *more)
    assert (result.code, acting.steps) == (3, [])
    [row] = json.loads(result.out)["outcomes"]
    assert (row["outcome"], row["code"], row["replicas"]) == ("blocked", "PAUSED", 3)
    assert "bad answers; it can be replaced after `fleetctl resume org/one --fleet lab`" in row["message"]


def test_a_pause_during_a_replace_stops_it_before_the_next_end(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 3)
    fleet, carry_out = fleet_of(tmp_path / "f.yaml", 3), acting

    def pause_after_a_create(request: dict[str, Any]) -> Steps:
        steps = carry_out(request)
        if acting.steps == ["+3"]:
            note = {"verb": "pause", "fleet": "lab", "namespace": "fleet", "model": MODEL}
            acting.stand_in.records.add("pause", record("m", now(), **note))
        return steps

    acting.stand_in.on_submit = pause_after_a_create
    result = cli("replace", MODEL, "-f", fleet, "--yes", "--format", "json")
    assert (result.code, acting.steps) == (3, ["+3"])
    assert [(row["outcome"], row["code"]) for row in json.loads(result.out)["outcomes"]] == [
        ("ready", None), ("blocked", "PAUSED")]


def test_a_replica_in_a_crash_loop_does_not_block_its_update(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 1, state="RESTARTING")
    assert cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 1), "--yes").code == 0
    assert acting.steps == ["+1", "-0"]
    [apply] = [job for job in acting.stand_in.jobs if "apply" in job]
    awaited = acting.stand_in.request_of(apply)["await"]
    assert [model["but"] for model in awaited] == [[0]], "the crashing replica is not awaited"


def test_an_update_in_place_continues_after_its_replacement_failed(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 1, gpus=8)
    fleet, acting.fails = fleet_of(tmp_path / "f.yaml", 1, gpus=8), True
    words = ("replace", MODEL, "-f", fleet, "--yes", "--in-place", "--allow-outage")
    assert (cli(*words).code, specs(acting)) == (3, {"current": 0, "outdated": 0})
    acting.fails = False
    assert (cli(*words).code, specs(acting)) == (0, {"current": 1, "outdated": 0})


def test_a_draining_replica_is_not_counted_as_serving(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 1)
    fleet = fleet_of(tmp_path / "f.yaml", 1)
    [model] = inspect_fleet([str(fleet)]).sound().models
    acting.stand_in.add_replica(MODEL, 1, acting.stand_in.nodes[1]["node_id"], gpus=40_000, spec_hash=model.spec_hash)
    acting.stand_in.add_job("evicting", ("RUNNING", ""), verb="evict", fleet="lab", namespace="fleet",
                            replicas=json.dumps([f"{MODEL}/1"])).step()
    result = cli("replace", MODEL, "-f", fleet, "--yes")
    assert (result.code, acting.steps) == (1, [])
    assert f"{MODEL}/1: a running eviction is about to end it" in result.err


@pytest.mark.parametrize("how", ["it ends", "it lasts", "it is stopped"])
def test_replace_waits_for_an_eviction_that_a_killed_replace_has_begun(
        cli, acting: ActingCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    run_outdated(acting, 1)
    fleet = fleet_of(tmp_path / "f.yaml", 1)
    [model] = inspect_fleet([str(fleet)]).sound().models
    acting.stand_in.add_replica(MODEL, 1, acting.stand_in.nodes[1]["node_id"], gpus=40_000, spec_hash=model.spec_hash)
    evicting = acting.stand_in.add_job("evicting", ("RUNNING", ""), verb="evict", fleet="lab", namespace="fleet",
                                       within="9", replicas=json.dumps([f"{MODEL}/0"]))
    evicting.step()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2 and how != "it lasts":
            evicting.status = "STOPPED" if how == "it is stopped" else "SUCCEEDED"
            acting.stand_in.actors = acting.stand_in.actors[0 if how == "it is stopped" else 1:]

    monkeypatch.setattr(replace_module, "time", SimpleNamespace(sleep=sleep))
    result = cli("replace", MODEL, "-f", fleet, "--yes")
    assert result.err.count(f"{MODEL}/0: a running eviction is about to end it; waiting up to 9 s") == 1
    if how == "it lasts":
        assert (result.code, sum(pauses), acting.steps) == (1, 10.0, [])
        assert "run this again when it is gone" in result.err
    else:
        assert (result.code, sum(pauses)) == (0, 4.0), result.err
        assert acting.steps == ([] if how == "it ends" else ["-0"])
        assert specs(acting) == {"current": 1, "outdated": 0}


def test_an_eviction_notes_how_long_it_may_take(cli, acting: ActingCluster) -> None:
    run_outdated(acting, 1)
    assert cli("evict", f"{MODEL}/0", "--yes", "--drain", "30s", "--lock-timeout", "10s").code == 0
    [job] = acting.stand_in.jobs.values()
    assert job.body["metadata"]["within"] == "3760"


def test_a_replica_started_from_an_older_file_meanwhile_is_reported_and_stays(
        cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 2)
    ended = acting._end

    def end_and_start_an_old_one(request: dict[str, Any]) -> Steps:
        steps = ended(request)
        if len(acting.keeps) == 2:
            acting.stand_in.add_replica(MODEL, 9, acting.stand_in.nodes[1]["node_id"], gpus=40_000, spec_hash="old")
        return steps

    acting._end = end_and_start_an_old_one  # type: ignore[method-assign]
    result = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 2), "--yes")
    assert (result.code, acting.steps) == (3, ["+2", "-0", "+3", "-1"])
    assert f"{MODEL}/9: started meanwhile, with a spec that differs from the file's" in result.err


def test_serving_replicas_stay_while_a_replica_of_another_update_is_not_ready(
        cli, acting: ActingCluster, tmp_path: Path) -> None:
    """Two users replace at once with different files: each sees the other's new replica as outdated."""
    run_outdated(acting, 2)
    fleet = fleet_of(tmp_path / "f.yaml", 2)
    ready = acting._create

    def create_late(request: dict[str, Any]) -> Steps:
        steps = ready(request)
        acting.stand_in.actors[0]["state"] = "RESTARTING"
        acting.stand_in.actors[0]["actor_id"] = "f" * 32
        acting._create = ready  # type: ignore[method-assign]
        return steps

    acting._create = create_late  # type: ignore[method-assign]
    result = cli("replace", MODEL, "-f", fleet, "--yes", "--surge", "1")
    assert (result.code, acting.steps) == (3, ["+2"])
    assert f"{MODEL}/1 stays: 1 would serve without it, and 2 must" in result.err


def test_finished_steps_are_reported_if_the_cluster_becomes_unreachable(
        cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 2)
    ended = acting._end

    def end_and_cut_off(request: dict[str, Any]) -> Steps:
        acting.stand_in.refusals["GET", "/api/version"] = [(500, "")] * 99
        return ended(request)

    acting._end = end_and_cut_off  # type: ignore[method-assign]
    result = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 2), "--yes", "--format", "json")
    assert result.code == 3
    assert [row["outcome"] for row in json.loads(result.out)["outcomes"]] == ["ready", "gone"]
    assert "progress unknown" in result.err


def test_surge_and_in_place_cannot_be_combined(cli, acting: ActingCluster, tmp_path: Path) -> None:
    result = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 1), "--yes", "--surge", "2", "--in-place")
    assert result.code == 64
    assert "give either --surge N or --in-place" in result.err


def test_a_protected_model_or_one_with_target_0_is_not_replaced(cli, acting: ActingCluster, tmp_path: Path) -> None:
    run_outdated(acting, 1)
    result = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 0), "--yes")
    assert (result.code, acting.steps) == (64, [])
    fleet = fleet_of(tmp_path / "f.yaml", 1)
    document = json.loads(fleet.read_text())
    document["spec"]["policy"] = {"protectedModels": [MODEL]}
    fleet.write_text(json.dumps(document))
    assert (cli("replace", MODEL, "-f", fleet, "--yes").code, acting.steps) == (4, [])


def test_an_apply_with_surge_creates_one_extra_replica_and_waits_for_an_evict(
    cli, acting: ActingCluster, tmp_path: Path
) -> None:
    run_outdated(acting, 2)
    fleet = fleet_of(tmp_path / "f.yaml", 2, update={"mode": "surge"})
    for _ in range(2):
        assert cli("apply", "-f", fleet, "--yes").code == 0
    assert (acting.steps, specs(acting)) == (["+2"], {"current": 1, "outdated": 2})
    assert f"1 current of 2; outdated, end 1 to continue: {MODEL}/0, {MODEL}/1" in cli("plan", "-f", fleet).out
    assert cli("scale", MODEL, "--replicas", "3", "-f", fleet, "--yes").code == 0
    assert acting.steps == ["+2"], "scale counts what is live, outdated or not"
