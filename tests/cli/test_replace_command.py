"""`fleetctl replace`: a current replica is ready before an outdated one ends; by name, after a question, resumable."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, Steps, all_ready, event, summary

from fleetctl.agent.mark import actor_name
from fleetctl.fleetfile.load import inspect_fleet, load_fleet

MODEL = "org/one"


@dataclass
class Acting:
    """A cluster that does as its agents are asked; `ready` = how many served after each step."""

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
def acting(cluster: ClusterStandIn) -> Acting:
    cluster.on_submit = made = Acting(cluster)
    return made


def fleet_of(path: Path, replicas: int, gpus: int = 4, **more: Any) -> Path:
    model = {"key": MODEL, "replicas": replicas, **more, "workers": [
        {"name": "main", "members": [{"resources": {"gpus": gpus}, "engine": {"command": ["serve"]}}]}]}
    path.write_text(json.dumps({"apiVersion": "fleetctl/v1", "kind": "Fleet", "metadata": {"name": "lab"},
                                "spec": {"models": [model]}}))
    return path


def run_outdated(acting: Acting, count: int, gpus: int = 4, state: str = "ALIVE") -> None:
    nodes = acting.stand_in.nodes
    for number in range(count):
        acting.stand_in.add_replica(MODEL, number, nodes[number * gpus // 8]["node_id"], gpus=gpus * 10_000,
                                    spec_hash="old", state=state)


def specs(acting: Acting) -> dict[str, int]:
    """How many live replicas are current and outdated."""
    found = [actor["repr_name"] for actor in acting.stand_in.actors]
    old = sum("old" in text for text in found)
    return {"current": len(found) - old, "outdated": old}


def test_one_at_a_time_and_never_fewer_ready_than_wanted(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 3)
    shown = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 3), "--yes", "--format", "json")
    assert shown.code == 0, shown.err
    assert acting.steps == ["+3", "-0", "+4", "-1", "+5", "-2"]
    assert min(acting.ready) == 3
    assert max(acting.ready) == 4
    assert acting.keeps == [{MODEL: 3}] * 3, "the agent looks again, just before"
    assert [row["outcome"] for row in json.loads(shown.out)["outcomes"]] == ["ready", "gone"] * 3
    assert specs(acting) == {"current": 3, "outdated": 0}
    again = cli("replace", MODEL, "-f", tmp_path / "f.yaml", "--yes")
    assert (again.code, len(acting.steps)) == (0, 6)
    assert "nothing to replace, 3 current of 3" in again.err


def test_the_history_has_one_row_for_it_and_its_steps_by_their_ids(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 2)
    fleet = fleet_of(tmp_path / "f.yaml", 2)
    assert cli("replace", MODEL, "-f", fleet, "--yes").code == 0
    assert cli("evict", f"{MODEL}/2", "--yes").code == 0
    shown = [line for line in cli("history").out.splitlines() if " ok " in line]
    assert [("2 ready, 2 gone" in line, " replace " in line, " evict " in line) for line in shown] == [
        (False, False, True), (True, True, False)]
    runs = json.loads(cli("history", "--format", "json").out)["runs"]
    assert [run["verb"] for run in runs] == ["evict", "evict", "apply", "evict", "apply"]
    [whole] = {run["stepOf"] for run in runs[1:]}
    several = cli("history", "show", whole)
    assert several.code == 1
    assert "matches 4 runs" in several.err
    assert "these are steps of one command" in several.err


def test_it_lists_the_outdated_by_name_and_node_and_asks(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 3)
    fleet = fleet_of(tmp_path / "f.yaml", 3)
    for shown, code in ((cli("replace", MODEL, "-f", fleet, typed="n\n"), 1),
                        (cli("replace", MODEL, "-f", fleet, "--dry-run"), 0)):
        assert shown.code == code
        assert f"replace: {MODEL}/0 (fleet lab, ready, on node-a)" in shown.err
        assert f"replace: {MODEL}/2 (fleet lab, ready, on node-b)" in shown.err
        assert "0 current of 3, 3 outdated; at most 1 beyond the target at a time" in shown.err
        assert acting.stand_in.writes() == []
    assert cli("replace", MODEL, "-f", fleet).code == 64, "nobody to ask, and no --yes"


def test_a_spec_that_fails_leaves_the_old_ones_serving_and_is_3(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 2)
    fleet, acting.fails = fleet_of(tmp_path / "f.yaml", 2), True
    shown = cli("replace", MODEL, "-f", fleet, "--yes")
    assert shown.code == 3
    assert (acting.steps, specs(acting)) == (["+2"], {"current": 0, "outdated": 2})
    assert "ENGINE_EXITED" in shown.out
    assert "stopped, 0 current of 2, 2 outdated; live replicas stay" in shown.err
    acting.fails = False
    assert cli("replace", MODEL, "-f", fleet, "--yes").code == 0, "the same command goes on"
    assert specs(acting) == {"current": 2, "outdated": 0}


def test_it_continues_where_an_earlier_run_ended(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 2)
    fleet = fleet_of(tmp_path / "f.yaml", 2)
    [model] = inspect_fleet([str(fleet)]).sound().models
    acting.stand_in.add_replica(MODEL, 2, acting.stand_in.nodes[1]["node_id"], gpus=40_000, spec_hash=model.spec_hash)
    assert cli("replace", MODEL, "-f", fleet, "--yes").code == 0
    assert acting.steps == ["-0", "+3", "-1"]


def test_without_room_it_says_so_and_in_place_ends_one_first(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 4)
    fleet = fleet_of(tmp_path / "f.yaml", 4)
    full = cli("replace", MODEL, "-f", fleet, "--yes", "--format", "json")
    assert (full.code, acting.steps) == (3, [])
    [row] = json.loads(full.out)["outcomes"]
    assert row["code"] == "UPDATE_NEEDS_ROOM"
    assert "without one of them 3 of 4 would serve" in row["message"]

    shown = cli("replace", MODEL, "-f", fleet, "--yes", "--in-place")
    assert shown.code == 0, shown.err
    assert "so 3 of 4 serve" in shown.err
    assert acting.steps == ["-0", "+4", "-1", "+5", "-2", "+6", "-3", "+7"]
    assert min(acting.ready) == 3


def test_in_place_refuses_an_outage_unless_it_is_allowed(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 1, gpus=8)
    fleet = fleet_of(tmp_path / "f.yaml", 1, gpus=8)
    shown = cli("replace", MODEL, "-f", fleet, "--yes", "--in-place")
    assert (shown.code, acting.steps) == (1, [])
    assert "no replica would serve while the new one starts" in shown.err
    assert cli("replace", MODEL, "-f", fleet, "--yes", "--in-place", "--allow-outage").code == 0
    assert acting.steps == ["-0", "+0"]


def test_in_place_ends_nothing_if_the_new_spec_would_not_fit(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 4)
    shown = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 4, gpus=8), "--yes", "--in-place")
    assert (shown.code, acting.steps) == (1, [])
    assert "would not fit in place of an outdated one: needs 8 free GPUs" in shown.err


def test_in_place_ends_nothing_if_the_policy_forbids_the_replacement(
        cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 4)
    fleet = fleet_of(tmp_path / "f.yaml", 4)
    document = json.loads(fleet.read_text())
    document["spec"]["policy"] = {"maxNewGpus": 3}
    fleet.write_text(json.dumps(document))
    words = ("replace", MODEL, "-f", fleet, "--yes", "--in-place")
    shown = cli(*words)
    assert (shown.code, acting.steps) == (4, []), shown.err
    assert "against spec.policy.maxNewGpus: 3" in shown.err
    assert cli(*words, "--force").code == 0


def test_in_place_a_cooldown_ends_nothing_and_is_lifted_by_its_flag(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 2)
    fleet, stand_in = fleet_of(tmp_path / "f.yaml", 2), acting.stand_in
    [model] = load_fleet([str(fleet)]).models
    for node in (*stand_in.nodes, stand_in.nodes[0]):
        stand_in.add_failure(MODEL, node["node_id"], model.spec_hash, "CUDA out of memory")
    words = ("replace", MODEL, "-f", fleet, "--yes", "--in-place")
    shown = cli(*words)
    assert (shown.code, acting.steps) == (1, [])
    assert "cooling until" in shown.err
    assert cli(*words, "--ignore-cooldown").code == 0


def test_a_replica_in_a_crash_loop_does_not_hold_its_update_up(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 1, state="RESTARTING")
    assert cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 1), "--yes").code == 0
    assert acting.steps == ["+1", "-0"]
    [apply] = [job for job in acting.stand_in.jobs if "apply" in job]
    assert [model["but"] for model in acting.stand_in.request_of(apply)["await"]] == [[0]], "it is not waited for"


def test_an_update_in_place_that_failed_after_the_last_end_continues(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 1, gpus=8)
    fleet, acting.fails = fleet_of(tmp_path / "f.yaml", 1, gpus=8), True
    words = ("replace", MODEL, "-f", fleet, "--yes", "--in-place", "--allow-outage")
    assert (cli(*words).code, specs(acting)) == (3, {"current": 0, "outdated": 0})
    acting.fails = False
    assert (cli(*words).code, specs(acting)) == (0, {"current": 1, "outdated": 0})


def test_one_that_drains_is_not_counted_as_serving(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 1)
    fleet = fleet_of(tmp_path / "f.yaml", 1)
    [model] = inspect_fleet([str(fleet)]).sound().models
    acting.stand_in.add_replica(MODEL, 1, acting.stand_in.nodes[1]["node_id"], gpus=40_000, spec_hash=model.spec_hash)
    acting.stand_in.add_job("evicting", ("RUNNING", ""), verb="evict", fleet="lab", namespace="fleet",
                            replicas=json.dumps([f"{MODEL}/1"])).step()
    shown = cli("replace", MODEL, "-f", fleet, "--yes")
    assert (shown.code, acting.steps) == (1, [])
    assert f"{MODEL}/1: a running eviction is about to end it" in shown.err


def test_an_older_file_applied_in_between_is_reported_and_its_replica_stays(
        cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 2)
    ended = acting._end

    def end_and_start_an_old_one(request: dict[str, Any]) -> Steps:
        steps = ended(request)
        if len(acting.keeps) == 2:
            acting.stand_in.add_replica(MODEL, 9, acting.stand_in.nodes[1]["node_id"], gpus=40_000, spec_hash="old")
        return steps

    acting._end = end_and_start_an_old_one  # type: ignore[method-assign]
    shown = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 2), "--yes")
    assert (shown.code, acting.steps) == (3, ["+2", "-0", "+3", "-1"])
    assert f"{MODEL}/9: started meanwhile, with a spec that differs from the file's" in shown.err


def test_serving_replicas_stay_while_a_replica_of_another_update_is_not_ready(
        cli, acting: Acting, tmp_path: Path) -> None:
    """Two people replace at once, with different files: to each, the other's replica is outdated, and starting."""
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
    shown = cli("replace", MODEL, "-f", fleet, "--yes", "--surge", "1")
    assert (shown.code, acting.steps) == (3, ["+2"])
    assert f"{MODEL}/1 stays: 1 would serve without it, and 2 must" in shown.err


def test_a_cluster_lost_halfway_hides_no_finished_step(
        cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 2)
    ended = acting._end

    def end_and_cut_off(request: dict[str, Any]) -> Steps:
        acting.stand_in.refusals["GET", "/api/version"] = [(500, "")] * 99
        return ended(request)

    acting._end = end_and_cut_off  # type: ignore[method-assign]
    shown = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 2), "--yes", "--format", "json")
    assert shown.code == 3
    assert [row["outcome"] for row in json.loads(shown.out)["outcomes"]] == ["ready", "gone"]
    assert "progress unknown" in shown.err


@pytest.mark.parametrize(("flags", "said"), [
    (["--surge", "2", "--in-place"], "give either --surge N or --in-place"),
])
def test_flags_that_exclude_each_other(cli, acting: Acting, tmp_path: Path, flags: list[str], said: str) -> None:
    shown = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 1), "--yes", *flags)
    assert shown.code == 64
    assert said in shown.err


def test_a_protected_model_stays_and_no_target_is_no_update(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 1)
    shown = cli("replace", MODEL, "-f", fleet_of(tmp_path / "f.yaml", 0), "--yes")
    assert (shown.code, acting.steps) == (64, [])
    fleet = fleet_of(tmp_path / "f.yaml", 1)
    document = json.loads(fleet.read_text())
    document["spec"]["policy"] = {"protectedModels": [MODEL]}
    fleet.write_text(json.dumps(document))
    assert (cli("replace", MODEL, "-f", fleet, "--yes").code, acting.steps) == (4, [])


def test_an_apply_with_surge_creates_one_beside_and_waits_for_a_person(cli, acting: Acting, tmp_path: Path) -> None:
    run_outdated(acting, 2)
    fleet = fleet_of(tmp_path / "f.yaml", 2, update={"mode": "surge"})
    for _ in range(2):
        assert cli("apply", "-f", fleet, "--yes").code == 0
    assert (acting.steps, specs(acting)) == (["+2"], {"current": 1, "outdated": 2})
    assert f"1 current of 2; outdated, end 1 to continue: {MODEL}/0, {MODEL}/1" in cli("plan", "-f", fleet).out
    assert cli("scale", MODEL, "--replicas", "3", "-f", fleet, "--yes").code == 0
    assert acting.steps == ["+2"], "scale counts what is live, outdated or not"
