"""`fleetctl show FILE`: a saved plan in every format, and whether it can still be applied; read-only."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, get_args

import pytest
from cluster_stand_in import ClusterStandIn, event

from fleetctl.documents.canonical import plan_id
from fleetctl.render.report.formats import ReportFormat
from fleetctl.version import __version__


@pytest.fixture
def saved(cli, fleet_file: Path, tmp_path: Path) -> Path:
    """A plan of three creations and one blocked replica, saved by `plan --out`."""
    path = tmp_path / "lab.fleetplan"
    assert cli("plan", "-f", fleet_file, "--out", path).code == 0
    return path


def rewrite(path: Path, **changes: Any) -> None:
    plan = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({**plan, "planId": plan_id(plan)}))


@pytest.mark.parametrize("chosen", [one for one in get_args(ReportFormat) if one != "html"])
def test_a_saved_plan_is_shown_as_plan_showed_it(cli, fleet_file: Path, saved: Path, chosen: str) -> None:
    snapshot = saved.with_name("inventory.json")
    snapshot.write_text(cli("inventory", "--format", "json").out)
    cli("plan", "-f", fleet_file, "--inventory", snapshot, "--out", saved)
    planned = cli("plan", "-f", fleet_file, "--inventory", snapshot, "--format", chosen).out
    result = cli("show", saved, "--format", chosen)
    assert (result.code, result.out) == (0, planned)


@pytest.mark.parametrize(("content", "words"), [
    (None, "cannot be read: No such file or directory"), (b"ok \xff", "is not UTF-8 text (byte 3)"),
])
def test_an_unreadable_file_is_reported_as_in_map(
    cli, tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "odd"
    if content is not None:
        path.write_bytes(content)
    for command in (("show", path), ("map", "--inventory", path)):
        result = cli(*command)
        assert (result.code, result.err) == (1, f"error: {path} {words}\n")


def test_show_contacts_no_cluster_by_default(cli, cluster: ClusterStandIn, saved: Path) -> None:
    cluster.requests.clear()
    assert cli("show", saved, "--format", "html").code == 0
    assert cluster.requests == []


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_a_masked_plan_is_shown_and_stays_masked(
    cli, fleet_file: Path, saved: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked = cli("plan", "-f", fleet_file, "--format", "json").out
    path = saved.with_name("masked.json")
    path.write_text(masked)
    monkeypatch.setattr("fleetctl.cli.process.read_stdin", masked.encode)
    result = cli("show", path if source == "file" else "-", "--format", "json")
    assert (result.code, result.out) == (0, masked)
    assert "note: env values are masked in this document" in result.err
    assert cli("apply", path, "--yes").code == 1


def test_env_values_are_never_shown(cli, saved: Path) -> None:
    results = [cli("show", saved, "--format", one) for one in get_args(ReportFormat)]
    assert "hush-hush" in saved.read_text()
    assert "hush-hush" not in "".join(result.out + result.err for result in results)


def test_show_prints_the_origin_of_the_plan(cli, saved: Path) -> None:
    git = {"commit": "0123456789abcdef", "branch": "main", "dirty": True}
    rewrite(saved, fleet={**json.loads(saved.read_text())["fleet"], "git": git}, expiresAt="2126-01-01T00:00:00Z")
    plan = json.loads(saved.read_text())
    assert (f"plan: {plan['planId'][:10]}, commit 0123456789 with uncommitted changes, made by fleetctl {__version__}, "
            "valid until 2126-01-01T00:00:00Z\n") in cli("show", saved).err


def test_another_version_and_an_expired_plan_are_reported(cli, saved: Path) -> None:
    rewrite(saved, toolVersion="0.0.1", expiresAt="2020-01-01T00:00:00Z")
    result = cli("show", saved, "--detailed-exitcode")
    assert f"made by fleetctl 0.0.1 (this is {__version__}), expired at 2020-01-01T00:00:00Z" in result.err
    assert "check: this plan expired at 2020-01-01T00:00:00Z" in result.err
    assert result.code == 6


def test_the_exit_code_is_0_or_with_the_flag_that_of_plan(cli, saved: Path) -> None:
    assert (cli("show", saved).code, cli("show", saved, "--detailed-exitcode").code) == (0, 3)


@pytest.mark.parametrize("how", [["--check"], ["--address", "URL"]], ids=" ".join)
def test_a_check_that_finds_nothing_says_so_and_writes_nothing(
    cli, cluster: ClusterStandIn, saved: Path, how: list[str]
) -> None:
    result = cli("show", saved, *[part.replace("URL", cluster.url) for part in how], "--detailed-exitcode")
    assert "check: nothing it relies on has changed" in result.err
    assert result.code == 3
    assert cluster.writes() == []


def test_a_check_names_what_has_moved_and_how_to_plan_again(
    cli, cluster: ClusterStandIn, fleet_file: Path, saved: Path
) -> None:
    cluster.nodes[0]["state"] = "DEAD"
    result = cli("show", saved, "--check", "--detailed-exitcode")
    assert "check: this plan is stale: what it relies on has changed" in result.err
    assert "moved: node node-a: was alive when planned, is dead now" in result.err
    assert f"hint: make a new one: fleetctl plan -f {fleet_file} " in result.err
    assert "Plan: 3 to create" in result.out
    assert result.code == 6
    assert cli("show", saved, "--check").code == 0


def test_a_check_reports_a_plan_that_was_already_applied(cli, cluster: ClusterStandIn, saved: Path) -> None:
    cluster.add_job("j7", planId=json.loads(saved.read_text())["planId"]).log = event(1, "lockAcquired")
    result = cli("show", saved, "--check", "--detailed-exitcode")
    assert "check: this plan was already applied by job j7" in result.err
    assert result.code == 6


def test_a_plan_can_be_checked_against_a_snapshot(cli, cluster: ClusterStandIn, saved: Path) -> None:
    cluster.add_replica("org/two", 4, cluster.nodes[0]["node_id"], gpus=0)
    snapshot = saved.with_name("inventory.json")
    snapshot.write_text(cli("inventory", "--format", "json").out)
    cluster.requests.clear()
    result = cli("show", saved, "--inventory", snapshot)
    assert "moved: org/two: 0 live when planned, 1 now" in result.err
    assert cluster.requests == []


def test_a_check_on_an_incomplete_inventory_is_an_error(cli, cluster: ClusterStandIn, saved: Path) -> None:
    cluster.refusals["GET", "/api/v0/actors"] = [(500, "")] * 10
    result = cli("show", saved, "--check")
    assert (result.code, result.out) == (1, "")


@pytest.mark.parametrize("edited", [False, True])
def test_the_page_has_a_map_if_there_is_an_inventory(
    cli, cluster: ClusterStandIn, fleet_file: Path, saved: Path, edited: bool
) -> None:
    cluster.add_node("node-that-is-not-touched")
    cluster.add_node("node-that-is-not-touched-either")
    if edited:
        fleet_file.write_text("not what it was")
    assert "node-that-is-not-touched" not in cli("show", saved, "--format", "html").out
    assert "node-that-is-not-touched" in cli("show", saved, "--format", "html", "--check").out


def test_a_plan_whose_node_is_gone_is_shown_without_a_map(cli, cluster: ClusterStandIn, saved: Path) -> None:
    cluster.nodes.pop()
    result = cli("show", saved, "--format", "html", "--check")
    assert result.code == 0
    assert "was alive when planned, is not listed now" in result.err


def test_show_writes_several_reports(cli, saved: Path, tmp_path: Path) -> None:
    flags = [part for one in ("markdown", "sarif") for part in ("--report", f"{one}={tmp_path / one}")]
    assert cli("show", saved, *flags).code == 0
    assert (tmp_path / "markdown").read_text()
    assert json.loads((tmp_path / "sarif").read_text())["runs"]


@pytest.mark.parametrize(("content", "words"), [
    ("{}", "has no kind"), ('{"kind": "Plan"', "incomplete JSON"), ("", "is empty"),
])
def test_a_file_that_is_not_a_plan_is_refused(cli, tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "odd"
    path.write_text(content)
    result = cli("show", path)
    assert (result.code, result.out) == (1, "")
    assert words in result.err


def test_a_plan_that_was_tampered_with_is_not_shown(cli, saved: Path) -> None:
    saved.write_text(saved.read_text().replace("node-a", "node-z"))
    result = cli("show", saved)
    assert (result.code, result.out) == (1, "")
    assert "was changed after it was written" in result.err


def test_invalid_flags_in_a_plan_are_reported_as_damage(cli, saved: Path) -> None:
    rewrite(saved, options={"files": 5})
    result = cli("show", saved)
    assert result.code == 1
    assert "damaged: options.files" in result.err


def test_a_plan_with_a_pipe_as_its_fleet_file_is_shown_without_reading_it(
    cli, saved: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    rewrite(saved, options={**json.loads(saved.read_text())["options"], "files": [str(tmp_path / "pipe")]})
    assert cli("show", saved, "--format", "html", "--check").code == 0


def test_a_pipe_without_a_writer_is_an_error_at_once(cli, saved: Path, fleet_file: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    watch = "watch", "-f", fleet_file, "--listen", "127.0.0.1:0"
    for arguments in (("show", pipe), ("show", saved, "--inventory", pipe), (*watch, "--webhook-file", pipe),
                      (*watch, "--listen-token-file", pipe), ("plan", "-f", pipe)):
        result = cli(*arguments)
        assert (result.code, "a pipe without a writer" in " ".join(result.err.split())) in ((1, True), (64, True))


def test_standard_input_is_read_once(cli) -> None:
    assert cli("show", "-", "--inventory", "-").code == 64
