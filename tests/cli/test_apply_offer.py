"""A stale plan is refused, and the plan as made now is shown; at a terminal it can be accepted instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_stand_in import ClusterStandIn

from fleetctl.documents.canonical import plan_id


@pytest.fixture
def stale(cli, cluster: ClusterStandIn, fits: Path, tmp_path: Path) -> Path:
    """A plan for node-a and node-b; since then node-b has died and node-c has joined."""
    path = tmp_path / "lab.fleetplan"
    assert cli("plan", "-f", fits, "--out", path, "--namespace", "other").code == 0
    cluster.nodes[1]["state"] = "DEAD"
    cluster.add_node("node-c")
    return path


def test_in_a_script_the_new_plan_is_shown_and_the_old_one_refused(
    cli, cluster: ClusterStandIn, stale: Path
) -> None:
    result = cli("apply", stale, "--yes")
    assert (result.code, result.out) == (6, "")
    before, _, after = result.err.partition("error: this plan is stale")
    assert "note: the plan as it would be made now:" in before
    assert "8 GPUs on node-c" in before
    assert "Plan: 3 to create" in before
    assert "moved: node node-b: was alive when planned, is dead now" in after
    assert cluster.writes() == []


def test_the_command_for_the_new_plan_can_be_pasted(
    cli, cluster: ClusterStandIn, fits: Path, stale: Path
) -> None:
    hint = next(line for line in cli("apply", stale, "--yes").err.splitlines() if line.startswith("hint: "))
    command = hint.removeprefix("hint: make a new one: ").split()
    assert command == ["fleetctl", "plan", "-f", str(fits), "--namespace", "other", "--address", cluster.url,
                       "--out", str(stale)]
    assert cli(*command[1:]).code == 0
    assert cli("apply", stale, "--yes").code == 0
    [job] = cluster.jobs
    assert cluster.request_of(job)["namespace"] == "other"


def test_the_new_plan_may_be_accepted_instead(cli, cluster: ClusterStandIn, stale: Path) -> None:
    result = cli("apply", stale, typed="y\n")
    assert result.code == 0
    positions = [result.err.index(words) for words in ("moved: node node-b", "8 GPUs on node-c", "instead? [y/N]")]
    assert positions == sorted(positions)
    assert result.err.count("[y/N]") == 1
    [job] = cluster.jobs
    request = cluster.request_of(job)
    assert request["plan"]["planId"] != json.loads(stale.read_text())["planId"]
    nodes = {member["node"] for action in request["plan"]["actions"] for member in action["members"]}
    assert nodes == {"node-a", "node-c"}
    assert (request["singleUse"], request["namespace"]) == (False, "other")


@pytest.mark.parametrize("typed", ["n\n", "", "yep\n"])
def test_refusing_the_new_plan_changes_nothing(cli, cluster: ClusterStandIn, stale: Path, typed: str) -> None:
    result = cli("apply", stale, typed=typed)
    assert result.code == 6
    assert "the stale plan was not applied" in result.err
    assert "hint: make a new one: fleetctl plan " in result.err
    assert cluster.writes() == []


def test_the_yes_flag_does_not_accept_a_new_plan(cli, cluster: ClusterStandIn, stale: Path) -> None:
    result = cli("apply", stale, "--yes", typed="y\n")
    assert result.code == 6
    assert "[y/N]" not in result.err
    assert cluster.writes() == []


def test_a_new_plan_that_a_policy_refuses_is_not_offered(
    cli, cluster: ClusterStandIn, fits: Path, stale: Path
) -> None:
    fits.write_text(fits.read_text().replace("spec:\n", "spec:\n  policy: {protectedModels: ['*']}\n"))
    result = cli("apply", stale, typed="y\n")
    assert result.code == 6
    assert "Refused by policy" in result.err
    assert "[y/N]" not in result.err
    assert cluster.writes() == []


def test_fleet_files_edited_since_the_plan_are_named(cli, fits: Path, stale: Path) -> None:
    fits.write_text(fits.read_text() + "# a word\n")
    assert f"warning: {fits} has changed since the plan was made" in cli("apply", stale, "--yes").err


def test_unchanged_files_are_not_mentioned(cli, stale: Path) -> None:
    assert "has changed since" not in cli("apply", stale, "--yes").err


@pytest.mark.parametrize("text", [None, "a: ["])
def test_without_valid_fleet_files_no_new_plan_is_offered(
    cli, cluster: ClusterStandIn, fits: Path, stale: Path, text: str | None
) -> None:
    fits.unlink() if text is None else fits.write_text(text)
    result = cli("apply", stale, typed="y\n")
    assert result.code == 6
    assert "note: no new plan can be made here: 1 problem in the fleet files" in result.err
    assert "moved: node node-b" in result.err
    assert cluster.writes() == []


def test_no_new_plan_is_made_from_the_files_of_another_fleet(
    cli, cluster: ClusterStandIn, fits: Path, stale: Path
) -> None:
    fits.write_text(fits.read_text().replace("name: lab", "name: other"))
    result = cli("apply", stale, typed="y\n")
    assert result.code == 6
    assert "no new plan can be made here: the files here belong to fleet other, the plan to fleet lab" in result.err
    assert "[y/N]" not in result.err
    assert cluster.writes() == []


def test_a_plan_from_standard_input_cannot_be_made_again(
    cli, cluster: ClusterStandIn, fits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetctl.cli.process.read_stdin", fits.read_bytes)
    plan = tmp_path / "p"
    assert cli("plan", "-f", "-", "--out", plan).code == 0
    cluster.session = "session_2"
    result = cli("apply", plan, "--yes")
    assert result.code == 6
    assert "made from standard input" in result.err


def test_a_new_plan_is_offered_for_an_expired_one(cli, cluster: ClusterStandIn, fits: Path, tmp_path: Path) -> None:
    plan, snapshot = tmp_path / "p", tmp_path / "inventory.json"
    old = json.loads(cli("inventory", "--format", "json").out) | {"observedAt": "2026-01-01T00:00:00Z"}
    snapshot.write_text(json.dumps(old))
    assert cli("plan", "-f", fits, "--inventory", snapshot, "--out", plan).code == 0
    result = cli("apply", plan, typed="y\n")
    assert "refused: this plan expired at 2026-01-02T00:00:00Z" in result.err
    assert result.code == 0
    assert len(cluster.jobs) == 1


def test_the_new_plan_is_made_for_the_cluster_that_the_old_one_was_checked_against(
    cli, cluster: ClusterStandIn, stale: Path
) -> None:
    plan = json.loads(stale.read_text())
    plan["inventory"]["address"] = "http://127.0.0.1:9"  # the cluster has moved to FLEETCTL_ADDRESS
    stale.write_text(json.dumps({**plan, "planId": plan_id(plan)}))
    assert "8 GPUs on node-c" in cli("apply", stale, "--yes").err


def test_a_new_plan_with_nothing_to_create_is_not_offered(
    cli, cluster: ClusterStandIn, fits: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "p"
    cli("plan", "-f", fits, "--target", "org/two", "--out", plan)
    cluster.add_replica("org/two", 0, cluster.nodes[0]["node_id"], gpus=0)
    result = cli("apply", plan, typed="y\n")
    assert result.code == 6
    assert "Plan: 0 to create" in result.err
    assert "[y/N]" not in result.err
