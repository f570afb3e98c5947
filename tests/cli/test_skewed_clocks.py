"""Time is the cluster's: a client whose clock is hours off plans, notes and expires as one whose clock is right."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn
from record_rows import record

from fleetctl.agent.messages import FailedStart
from fleetctl.agent.report import encode_failure
from fleetctl.documents.base import as_datetime
from fleetctl.fleetfile.load import load_fleet

SKEWS = pytest.mark.parametrize("ahead_h", [2, -2, 30, -30], ids="cluster {:+} h".format)
"""How much the cluster's clock is ahead of this machine's."""


def time_there(cluster: ClusterStandIn, after_s: float = 0) -> datetime:
    return datetime.now(timezone.utc) + timedelta(seconds=(cluster.ahead_s or 0) + after_s)


def text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def add_failures(cluster: ClusterStandIn, fleet_file: Path, ago_s: float) -> None:
    [model] = [one for one in load_fleet([str(fleet_file)]).models if one.key == "org/one"]
    for node in (cluster.nodes[0], cluster.nodes[1], cluster.nodes[0]):
        cluster.add_failure("org/one", node["node_id"], model.spec_hash, "CUDA out of memory")
        at = text(time_there(cluster, -ago_s))
        failed = FailedStart("ENGINE_EXITED", "CUDA out of memory", at, model.spec_hash, "lab", [node["node_id"]], ())
        cluster.actors[-1]["death_cause"] = {"creation_task_failure_context": {
            "formatted_exception_string": f"RuntimeError: {encode_failure(failed)}"}}


def blocked(cli, fleet_file: Path) -> dict[str, str]:
    return {row["model"]: row["code"]
            for row in json.loads(cli("plan", "-f", fleet_file, "--format", "json").out)["blocked"]}


@SKEWS
def test_a_cooldown_lasts_as_long_as_the_cluster_says(
        cli, cluster: ClusterStandIn, fleet_file: Path, ahead_h: int) -> None:
    cluster.ahead_s = ahead_h * 3600
    add_failures(cluster, fleet_file, ago_s=60)
    found = cli("plan", "-f", fleet_file, "--format", "json")
    [row] = json.loads(found.out)["blocked"]
    assert (row["code"], "cooling until" in row["message"]) == ("COOLING_DOWN", True)
    assert "COOLING_DOWN" in cli("doctor", "-f", fleet_file).out


@SKEWS
def test_a_cooldown_that_is_over_for_the_cluster_is_over(
        cli, cluster: ClusterStandIn, fleet_file: Path, ahead_h: int) -> None:
    cluster.ahead_s = ahead_h * 3600
    add_failures(cluster, fleet_file, ago_s=3 * 3600)
    plan = json.loads(cli("plan", "-f", fleet_file, "--format", "json").out)
    assert [action["model"] for action in plan["actions"]].count("org/one") == 1, "one replica is tried first"


@SKEWS
def test_notes_end_by_the_clusters_time(cli, cluster: ClusterStandIn, fleet_file: Path, ahead_h: int) -> None:
    cluster.ahead_s = ahead_h * 3600
    assert cli("cordon", "node-a", "--for", "1h").code == 0
    assert cli("pause", "org/two", "-f", fleet_file, "--for", "1h").code == 0
    seen = json.loads(cli("inventory", "--format", "json").out)
    [cordon] = [node["cordon"] for node in seen["nodes"] if node["name"] == "node-a"]
    [pause] = seen["pauses"]
    for until in (cordon["until"], pause["until"]):
        assert abs(as_datetime(until) - time_there(cluster, 3600)) < timedelta(minutes=2)
    over = text(time_there(cluster, -60))
    note = {"verb": "pause", "fleet": "lab", "namespace": "fleet", "model": "org/one"}
    cluster.records.add("pause", record("over", **note, until=over))
    assert blocked(cli, fleet_file).get("org/one") != "PAUSED"
    cluster.records.add("pause", record("over", **note, until=text(time_there(cluster, 60))))
    assert blocked(cli, fleet_file)["org/one"] == "PAUSED"


@SKEWS
def test_a_saved_plan_expires_by_the_clusters_time(
        cli, cluster: ClusterStandIn, fleet_file: Path, tmp_path: Path, ahead_h: int) -> None:
    cluster.ahead_s = ahead_h * 3600
    saved = tmp_path / "saved.plan"
    result = cli("plan", "-f", fleet_file, "--out", saved, "--expires", "1h")
    assert "will refuse it" not in result.err
    plan = json.loads(saved.read_text())
    assert abs(as_datetime(plan["expiresAt"]) - time_there(cluster, 3600)) < timedelta(minutes=2)
    shown = cli("show", saved, "--check", "--detailed-exitcode")
    assert (shown.code, "valid until" in shown.err) == (3, True)
    cluster.ahead_s += 2 * 3600
    late = cli("show", saved, "--check", "--detailed-exitcode")
    assert (late.code, "expired at" in late.err) == (6, True)
    refused = cli("apply", saved, "--yes")
    assert (refused.code, "expired at" in refused.err) == (6, True)


@SKEWS
def test_ages_are_counted_by_the_clusters_time(cli, cluster: ClusterStandIn, ahead_h: int) -> None:
    cluster.ahead_s = ahead_h * 3600
    up_ms = int(time_there(cluster, -630).timestamp() * 1000)
    cluster.add_replica("org/one", 0, cluster.nodes[0]["node_id"], up_ms=(up_ms, up_ms))
    [row] = [line for line in cli("status").out.splitlines() if "org/one/0" in line]
    assert " 10m" in row


def test_the_doctor_says_by_how_much_the_clocks_differ(cli, cluster: ClusterStandIn) -> None:
    cluster.ahead_s = -7200
    found = " ".join(cli("doctor").out.split())
    assert "CLOCK_SKEW clock: this machine's clock is 720" in found
    assert "s ahead of the cluster's" in found
    cluster.ahead_s = -20
    assert "CLOCK_SKEW" not in cli("doctor").out


def test_a_run_lasts_too_long_by_the_clusters_time(cli, cluster: ClusterStandIn) -> None:
    cluster.ahead_s = 3 * 3600
    began = int(time_there(cluster, -600).timestamp() * 1000)
    job = cluster.add_job("fleetctl-apply-0123456789ab", ("RUNNING", ""), start_time=began, verb="apply", fleet="lab")
    job.step()
    assert "RUN_LASTS" not in cli("doctor").out
    job.start_time -= 3 * 3600 * 1000
    assert "RUN_LASTS" in cli("doctor").out


def test_without_the_clusters_time_this_machines_counts(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    cluster.ahead_s = None
    add_failures(cluster, fleet_file, ago_s=60)
    assert blocked(cli, fleet_file) == {"org/one": "COOLING_DOWN"}
