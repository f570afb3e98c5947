"""What failed several times in a row: plan, status, endpoints and the page say it; what a person may do about it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn

from fleetctl.fleetfile.load import load_fleet

WHY = "3 x ENGINE_EXITED: CUDA out of memory (node-a, node-b)"


@pytest.fixture
def key(cluster: ClusterStandIn, fleet_file: Path) -> str:
    """The first model of the fleet file, which has failed three times on two nodes."""
    model = load_fleet([str(fleet_file)]).models[0]
    for node in (*cluster.nodes, cluster.nodes[0]):
        cluster.add_failure(model.key, node["node_id"], model.spec_hash,
                            "it exited with code 1; last output: loading\nCUDA out of memory")
    return model.key


def plain(text: str) -> str:
    """Return the words, without the marks of a page that keep names whole."""
    return " ".join(re.sub(r"</?(?:span|wbr)\b[^>]*>", "", text).split())


def waiting(cli, fleet_file: Path) -> list[str]:
    blocked = json.loads(cli("plan", "-f", fleet_file, "--format", "json").out)["blocked"]
    return [one["model"] for one in blocked if one["code"] == "COOLING_DOWN"]


def test_plan_status_endpoints_and_the_page_say_what_cools_and_why(
    cli, key: str, fleet_file: Path, tmp_path: Path
) -> None:
    shown = cli("plan", "-f", fleet_file, "--detailed-exitcode", "--report", f"html={tmp_path / 'plan.html'}")
    assert shown.code == 3
    for text in (shown.out, (tmp_path / "plan.html").read_text(), cli("status", "-f", fleet_file).out,
                 cli("endpoints", "-f", fleet_file).err):
        assert WHY in plain(text)
        assert "cooling until" in plain(text)
    listed = plain(cli("status").out)
    assert f"{key} 3 " in listed
    assert "ENGINE_EXITED: CUDA out of memory" in listed
    assert len(json.loads(cli("status", "--format", "json").out)["failures"]) == 3
    assert json.loads(cli("status", "another", "--format", "json").out or '{"failures": []}')["failures"] == []


def test_the_doctor_and_the_drift_check_show_since_when_and_until_when(
    cli, key: str, fleet_file: Path, cluster: ClusterStandIn
) -> None:
    [found] = json.loads(cli("doctor", "-f", fleet_file, "--format", "json").out)["findings"]
    assert (found["code"], found["subject"], found["command"]) == ("COOLING_DOWN", key, f"fleetctl logs {key}")
    assert re.fullmatch(r"since (\S+ )?..:.. UTC: cooling until (\S+ )?..:.. UTC, .*", found["message"])
    assert WHY in found["message"]
    [alone] = json.loads(cli("doctor", "--format", "json").out)["findings"]
    assert (alone["code"], alone["subject"]) == ("FAILED_LATELY", key)
    assert "3 replicas failed within the last day, the latest at" in alone["message"]
    assert "COOLING_DOWN" in plain(cli("ci", "drift", "-f", fleet_file).out)
    for model in ("org/x", "org/y", "org/z"):
        cluster.add_failure(model, cluster.nodes[1]["node_id"], "s", "ECC error")
    codes = [one["code"] for one in json.loads(cli("doctor", "-f", fleet_file, "--format", "json").out)["findings"]]
    assert codes.count("NODE_COOLING") == 1


def test_status_of_another_model_leaves_it_out(cli, key: str, fleet_file: Path, cluster: ClusterStandIn) -> None:
    other = load_fleet([str(fleet_file)]).models[1].key
    cluster.add_replica(other, 0, cluster.nodes[0]["node_id"])
    assert "cooling until" in plain(cli("status", key, "-f", fleet_file).out + cli("status", "-f", fleet_file).out)
    assert "cooling until" not in plain(cli("status", other, "-f", fleet_file).out)


def test_apply_starts_it_only_if_the_cooldown_is_ignored(
    cli, key: str, fleet_file: Path, cluster: ClusterStandIn, tmp_path: Path
) -> None:
    waits = cli("apply", "-f", fleet_file, "--yes", "--format", "json")
    assert waits.code == 3
    assert {row["code"] for row in waits.summary["outcomes"] if row["model"] == key} == {"COOLING_DOWN"}
    tried = cli("apply", "-f", fleet_file, "--yes", "--format", "json", "--ignore-cooldown").summary["outcomes"]
    assert sum(row["model"] == key and row["outcome"] == "ready" for row in tried) == 2

    saved = tmp_path / "saved.fleetplan"
    cli("plan", "-f", fleet_file, "--ignore-cooldown", "--out", saved)
    assert cli("apply", saved, "--ignore-cooldown").code == 64
    cluster.session = "session_2"
    assert "--ignore-cooldown" in cli("apply", saved, "--yes").err


@pytest.mark.parametrize("verb", ["deploy", "scale", "replace", "ci apply"])
def test_every_starting_verb_needs_the_cooldown_to_be_ignored(
    cli, key: str, fits: Path, cluster: ClusterStandIn, verb: str
) -> None:
    command = [*verb.split(), *([] if verb == "ci apply" else [key, "--yes"]), "-f", fits]
    command += ["--replicas", "1"] if verb == "scale" else []

    def created() -> set[str]:
        return {action["model"] for job in cluster.jobs for action in cluster.request_of(job)["plan"]["actions"]}

    waits = cli(*command)
    assert (waits.code, key in created()) == (3, False)
    assert "COOLING_DOWN" in waits.out
    cli(*command, "--ignore-cooldown")
    assert key in created()


def test_a_job_plans_with_it_and_applies_what_was_planned(cli, key: str, fits: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.fleetplan"
    assert cli("ci", "review", "-f", fits, "--out", saved).code == 0
    assert cli("ci", "apply", saved, "--ignore-cooldown").code == 64
    cli("ci", "review", "-f", fits, "--out", saved, "--ignore-cooldown")
    assert f"{key}/0 ready" in plain(cli("ci", "apply", saved, "--ignore-cooldown").out)


def test_uncordon_says_that_the_nodes_are_good(cli, key: str, fleet_file: Path, cluster: ClusterStandIn) -> None:
    assert waiting(cli, fleet_file) == [key]
    for node in ("node-a", "node-b"):
        assert cli("uncordon", node).code == 0
    for job in cluster.jobs.values():
        job.start_time = int(time.time() * 1000) + 1000
    assert not waiting(cli, fleet_file)


def test_a_fixed_spec_starts_at_once(cli, key: str, fleet_file: Path) -> None:
    fleet_file.write_text(fleet_file.read_text().replace("command: [", "command: [env, FIXED=1, "))
    assert not waiting(cli, fleet_file)
