"""A model that failed several times in a row: every command shows the cooldown, and flags and verbs end it."""

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
    """The words of `text`, without the tags of a page that keep names on one line."""
    return " ".join(re.sub(r"</?(?:span|wbr)\b[^>]*>", "", text).split())


def cooling_models(cli, fleet_file: Path) -> list[str]:
    blocked = json.loads(cli("plan", "-f", fleet_file, "--format", "json").out)["blocked"]
    return [one["model"] for one in blocked if one["code"] == "COOLING_DOWN"]


def test_plan_status_endpoints_and_the_page_show_what_is_cooling_and_why(
    cli, key: str, fleet_file: Path, tmp_path: Path
) -> None:
    result = cli("plan", "-f", fleet_file, "--detailed-exitcode", "--report", f"html={tmp_path / 'plan.html'}")
    assert result.code == 3
    for text in (result.out, (tmp_path / "plan.html").read_text(), cli("status", "-f", fleet_file).out,
                 cli("endpoints", "-f", fleet_file).err):
        assert WHY in plain(text)
        assert "cooling until" in plain(text)
    summary = plain(cli("status").out)
    assert f"{key} 3 " in summary
    assert "ENGINE_EXITED: CUDA out of memory" in summary
    assert len(json.loads(cli("status", "--format", "json").out)["failures"]) == 3
    assert json.loads(cli("status", "another", "--format", "json").out or '{"failures": []}')["failures"] == []


def test_the_doctor_and_the_drift_check_show_the_start_and_end_of_a_cooldown(
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


def test_status_of_another_model_does_not_show_the_cooldown(
    cli, key: str, fleet_file: Path, cluster: ClusterStandIn
) -> None:
    other = load_fleet([str(fleet_file)]).models[1].key
    cluster.add_replica(other, 0, cluster.nodes[0]["node_id"])
    assert "cooling until" in plain(cli("status", key, "-f", fleet_file).out + cli("status", "-f", fleet_file).out)
    assert "cooling until" not in plain(cli("status", other, "-f", fleet_file).out)


def test_apply_starts_a_cooling_model_only_if_the_cooldown_is_ignored(
    cli, key: str, fleet_file: Path, cluster: ClusterStandIn, tmp_path: Path
) -> None:
    refused = cli("apply", "-f", fleet_file, "--yes", "--format", "json")
    assert refused.code == 3
    assert {row["code"] for row in refused.summary["outcomes"] if row["model"] == key} == {"COOLING_DOWN"}
    forced = cli("apply", "-f", fleet_file, "--yes", "--format", "json", "--ignore-cooldown").summary["outcomes"]
    assert sum(row["model"] == key and row["outcome"] == "ready" for row in forced) == 2

    saved = tmp_path / "saved.fleetplan"
    cli("plan", "-f", fleet_file, "--ignore-cooldown", "--out", saved)
    assert cli("apply", saved, "--ignore-cooldown").code == 64
    cluster.session = "session_2"
    assert "--ignore-cooldown" in cli("apply", saved, "--yes").err


@pytest.mark.parametrize("verb", ["deploy", "scale", "replace", "ci apply"])
def test_every_verb_that_starts_replicas_obeys_the_cooldown_or_its_flag(
    cli, key: str, fits: Path, cluster: ClusterStandIn, verb: str
) -> None:
    command = [*verb.split(), *([] if verb == "ci apply" else [key, "--yes"]), "-f", fits]
    command += ["--replicas", "1"] if verb == "scale" else []

    def created() -> set[str]:
        return {action["model"] for job in cluster.jobs for action in cluster.request_of(job)["plan"]["actions"]}

    refused = cli(*command)
    assert (refused.code, key in created()) == (3, False)
    assert "COOLING_DOWN" in refused.out
    cli(*command, "--ignore-cooldown")
    assert key in created()


def test_ci_review_takes_the_flag_and_ci_apply_applies_that_plan(cli, key: str, fits: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.fleetplan"
    assert cli("ci", "review", "-f", fits, "--out", saved).code == 0
    assert cli("ci", "apply", saved, "--ignore-cooldown").code == 64
    cli("ci", "review", "-f", fits, "--out", saved, "--ignore-cooldown")
    assert f"{key}/0 ready" in plain(cli("ci", "apply", saved, "--ignore-cooldown").out)


def test_uncordoning_the_nodes_ends_the_cooldown(cli, key: str, fleet_file: Path, cluster: ClusterStandIn) -> None:
    assert cooling_models(cli, fleet_file) == [key]
    for node in ("node-a", "node-b"):
        assert cli("uncordon", node).code == 0
    for job in cluster.jobs.values():
        job.start_time = int(time.time() * 1000) + 1000
    assert not cooling_models(cli, fleet_file)


def test_a_fixed_spec_starts_at_once(cli, key: str, fleet_file: Path) -> None:
    fleet_file.write_text(fleet_file.read_text().replace("command: [", "command: [env, FIXED=1, "))
    assert not cooling_models(cli, fleet_file)
