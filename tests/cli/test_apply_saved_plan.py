"""`fleetctl apply PLAN`: a saved plan is applied as it is, once, and only while its preconditions still hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_stand_in import ClusterStandIn, event

from fleetctl.documents.canonical import plan_id
from fleetctl.version import __version__

Saved = Callable[..., Path]


@pytest.fixture
def saved(cli, fleet_file: Path, tmp_path: Path) -> Path:
    """A plan of three creations and one blocked replica, saved by `plan --out`."""
    path = tmp_path / "lab.fleetplan"
    assert cli("plan", "-f", fleet_file, "--out", path).code == 0
    return path


def rewrite(path: Path, *, renew: bool, **changes: Any) -> None:
    """Change keys of a saved plan; `renew` updates its id to match, as another version of fleetctl would."""
    plan = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({**plan, "planId": plan_id(plan)} if renew else plan))


def test_a_saved_plan_is_applied_as_it_is_and_for_one_use(cli, cluster: ClusterStandIn, saved: Path) -> None:
    result = cli("apply", saved, "--yes", "--format", "json")
    assert result.code == 3
    [job] = cluster.jobs
    request = cluster.request_of(job)
    assert request["plan"] == json.loads(saved.read_text())
    assert request["singleUse"] is True
    assert cluster.jobs[job].body["metadata"]["planId"] == request["plan"]["planId"] == result.summary["planId"]


def test_an_apply_of_files_is_not_bound_to_one_use(cli, cluster: ClusterStandIn, fleet_file: Path) -> None:
    cli("apply", "-f", fleet_file, "--yes")
    [job] = cluster.jobs
    assert cluster.request_of(job)["singleUse"] is False


def test_a_saved_plan_is_applied_to_the_cluster_it_names(
    cli, cluster: ClusterStandIn, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLEETCTL_ADDRESS")
    assert cli("apply", saved, "--yes").code == 3
    assert len(cluster.jobs) == 1


def refused(cli, cluster: ClusterStandIn, saved: Path, code: int, *words: str) -> str:
    """Apply and check that it is refused with `code` and `words`, and that nothing was written."""
    result = cli("apply", saved, "--yes")
    assert result.code == code
    assert all(word in result.err for word in words), result.err
    assert "Traceback" not in result.err
    assert result.out == ""
    assert cluster.writes() == []
    return result.err


@pytest.mark.parametrize("version", ["1.1", "3.0"])
def test_another_major_version_is_refused(cli, cluster: ClusterStandIn, saved: Path, version: str) -> None:
    rewrite(saved, renew=True, formatVersion=version)
    refused(cli, cluster, saved, 1, f"formatVersion {version}", "reads 2.x", "hint: use the fleetctl that wrote it, or")


def test_a_newer_minor_version_is_applied(cli, cluster: ClusterStandIn, saved: Path) -> None:
    rewrite(saved, renew=True, formatVersion="2.7", news=["additive"])
    assert cli("apply", saved, "--yes").code == 3
    assert len(cluster.jobs) == 1


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_truncated_plan_is_refused(cli, cluster: ClusterStandIn, saved: Path, keep: int) -> None:
    saved.write_text(saved.read_text().rstrip()[:keep])
    refused(cli, cluster, saved, 1, str(saved), "hint: ")


def test_a_plan_that_was_tampered_with_is_refused(cli, cluster: ClusterStandIn, saved: Path) -> None:
    plan = json.loads(saved.read_text())
    plan["actions"][0]["wanted"] = 99
    saved.write_text(json.dumps(plan))
    refused(cli, cluster, saved, 1, "was changed after it was written", "planId does not match")


def test_a_plan_with_an_operation_this_version_does_not_know_is_refused(
    cli, cluster: ClusterStandIn, saved: Path
) -> None:
    plan = json.loads(saved.read_text())
    plan["actions"][0]["op"] = "remove"
    rewrite(saved, renew=True, actions=plan["actions"])
    refused(cli, cluster, saved, 1, "needs a newer fleetctl", 'the operation "remove"', "knows formatVersion 2.0")


def test_a_masked_plan_is_refused(cli, cluster: ClusterStandIn, fleet_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "shown.json"
    path.write_text(cli("plan", "-f", fleet_file, "--format", "json").out)
    refused(cli, cluster, path, 1, "masked", "plan --out")


def test_an_inventory_is_not_a_plan(cli, cluster: ClusterStandIn, tmp_path: Path) -> None:
    path = tmp_path / "inventory.json"
    path.write_text(cli("inventory", "--format", "json").out)
    refused(cli, cluster, path, 1, "is an Inventory, not a Plan")


@pytest.mark.parametrize(("content", "words"), [(None, "No such file"), (b"\xff\xfe", "is not UTF-8 text")])
def test_a_file_that_cannot_be_read_is_refused(
    cli, cluster: ClusterStandIn, tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "odd.fleetplan"
    if content is not None:
        path.write_bytes(content)
    refused(cli, cluster, path, 1, str(path), words)


def test_an_expired_plan_is_refused(cli, cluster: ClusterStandIn, saved: Path) -> None:
    rewrite(saved, renew=True, expiresAt="2020-01-01T00:00:00Z")
    refused(cli, cluster, saved, 6, "expired at 2020-01-01T00:00:00Z", "make a new one")


def test_a_plan_that_never_expires_is_applied(cli, saved: Path) -> None:
    rewrite(saved, renew=True, expiresAt=None)
    assert cli("apply", saved, "--yes").code == 3


def other_session(cluster: ClusterStandIn) -> None:
    cluster.session = "session_2"


def node_died(cluster: ClusterStandIn) -> None:
    cluster.nodes[0]["state"] = "DEAD"


def replica_came_up(cluster: ClusterStandIn) -> None:
    cluster.add_replica("org/two", 4, cluster.nodes[0]["node_id"], gpus=0)


def room_was_taken(cluster: ClusterStandIn) -> None:
    cluster.add_replica("foreign", 0, cluster.nodes[1]["node_id"], fleet=None, gpus=10_000)


@pytest.mark.parametrize(("change", "moved"), [
    (other_session, "the cluster has a new session: session_1 when planned, session_2 now"),
    (node_died, "node node-a: was alive when planned, is dead now"),
    (replica_came_up, "org/two: 0 live when planned, 1 now"),
    (room_was_taken, "node node-b: less is free than org/one/"),
], ids=lambda value: getattr(value, "__name__", ""))
def test_a_stale_plan_is_refused_and_says_what_moved(
    cli, cluster: ClusterStandIn, saved: Path, change: Callable[[ClusterStandIn], None], moved: str
) -> None:
    change(cluster)
    refused(cli, cluster, saved, 6, "this plan is stale", f"moved: {moved}")


def test_changes_that_the_plan_does_not_rely_on_are_accepted(cli, cluster: ClusterStandIn, saved: Path) -> None:
    cluster.add_node("node-c")
    cluster.add_replica("foreign", 0, cluster.nodes[2]["node_id"], fleet=None)
    assert cli("apply", saved, "--yes").code == 3
    assert len(cluster.jobs) == 1


def test_a_plan_that_was_used_is_refused_and_names_the_job(cli, cluster: ClusterStandIn, saved: Path) -> None:
    plan = json.loads(saved.read_text())
    cluster.add_job("fleetctl-apply-7", planId=plan["planId"]).log = event(1, "lockAcquired")
    refused(cli, cluster, saved, 6, "already applied by job fleetctl-apply-7", "hint: make a new one: fleetctl plan -f")


def test_the_agent_decides_whether_a_plan_was_already_used(cli, cluster: ClusterStandIn, saved: Path) -> None:
    last = event(0, "runSummary", "this plan was already applied by job j7", outcomes=[], exitCode=6, usedBy="j7")
    cluster.on_submit = lambda _: [("FAILED", last)]
    result = cli("apply", saved, "--yes", "--format", "json")
    assert result.code == 6
    assert "already applied by job j7" in result.err


def test_a_plan_is_not_applied_on_an_incomplete_inventory(cli, cluster: ClusterStandIn, saved: Path) -> None:
    cluster.refusals["GET", "/api/version"] = [(500, "")] * 10
    refused(cli, cluster, saved, 1, "version and session")


def test_an_expiry_without_a_zone_is_reported_as_damage(cli, cluster: ClusterStandIn, saved: Path) -> None:
    rewrite(saved, renew=True, expiresAt="2126-01-01T00:00:00")
    refused(cli, cluster, saved, 1, "damaged", "expiresAt", "RFC 3339 with a zone")


@pytest.mark.parametrize("by", ["environment", "flag"])
def test_the_cluster_comes_from_flag_then_environment_then_plan(
    cli, cluster: ClusterStandIn, saved: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    nowhere = "http://127.0.0.1:9"
    monkeypatch.setenv("FLEETCTL_ADDRESS", nowhere)
    result = cli("apply", saved, "--yes", *(["--address", cluster.url] if by == "flag" else []))
    assert result.code == (3 if by == "flag" else 1)
    assert (nowhere in result.err) is (by == "environment")


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_stale_plan_ends_with_a_summary_for_programs(
    cli, cluster: ClusterStandIn, saved: Path, output: str
) -> None:
    other_session(cluster)
    result = cli("apply", saved, "--yes", "--format", output)
    assert (result.code, result.lines[-1]["type"], result.lines[-1]["exitCode"]) == (6, "runSummary", 6)


def test_the_question_about_a_saved_plan_names_its_origin(cli, cluster: ClusterStandIn, saved: Path) -> None:
    git = {"commit": "0123456789abcdef", "dirty": True}
    rewrite(saved, renew=True, toolVersion="0.0.1", expiresAt="2126-01-01T00:00:00Z",
            fleet={**json.loads(saved.read_text())["fleet"], "git": git})
    result = cli("apply", saved, typed="n\n")
    origin = (f"plan: {json.loads(saved.read_text())['planId'][:10]}, commit 0123456789 with uncommitted changes, "
            f"made by fleetctl 0.0.1 (this is {__version__}), valid until 2126-01-01T00:00:00Z\n")
    assert origin in result.err
    assert result.err.index(origin) < result.err.index("Create 3 replicas? [y/N]")
    assert cluster.writes() == []
