"""--format and --report, which every command with a document has."""

from __future__ import annotations

import json
import stat
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import get_args

import pytest
from cluster_stand_in import ClusterStandIn

from fleetctl.cli.reporting import repository_root
from fleetctl.render.report.formats import ReportFormat

FORMATS = get_args(ReportFormat)


def plan(cli, fleet: Path, snapshot: Path, *flags: str | Path):
    return cli("plan", "-f", fleet, "--inventory", snapshot, *flags)


def test_one_run_writes_several_reports_and_prints_another(
    cli, fleet_file: Path, snapshot_file: Path, tmp_path: Path
) -> None:
    names = {one: tmp_path / f"report.{one}" for one in FORMATS}
    flags = [part for one, path in names.items() for part in ("--report", f"{one}={path}")]
    result = plan(cli, fleet_file, snapshot_file, *flags)
    assert result.code == 0
    assert "Plan: 3 to create" in result.out
    texts = {one: path.read_text() for one, path in names.items()}
    assert all(texts.values())
    assert json.loads(texts["json"])["summary"]["create"] == 3
    assert json.loads(texts["sarif"])["version"] == "2.1.0"
    assert ET.fromstring(texts["junit"]).tag == "testsuites"
    assert texts["html"].lstrip().lower().startswith("<!doctype html>")
    assert texts["table"] == result.out
    assert "hush-hush" not in "".join(texts.values())


@pytest.mark.parametrize("chosen", FORMATS)
def test_a_report_equals_the_output_of_its_format(
    cli, fleet_file: Path, snapshot_file: Path, tmp_path: Path, chosen: str
) -> None:
    result = plan(cli, fleet_file, snapshot_file, "--format", chosen, "--report", f"{chosen}={tmp_path / 'report'}")
    assert (tmp_path / "report").read_text() == result.out


@pytest.mark.parametrize("chosen", [one for one in FORMATS if one != "table"])
def test_only_the_table_may_have_color(
    cli, fleet_file: Path, snapshot_file: Path, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = plan(cli, fleet_file, snapshot_file, "--format", chosen).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert plan(cli, fleet_file, snapshot_file, "--format", chosen).out == plain


def test_a_report_of_the_table_has_no_color(
    cli, fleet_file: Path, snapshot_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = plan(cli, fleet_file, snapshot_file, "--report", f"table={tmp_path / 'report'}")
    assert "\x1b[" in result.out
    assert "\x1b" not in (tmp_path / "report").read_text()


@pytest.mark.parametrize(("values", "words"), [
    (["pdf=plan.pdf"], "--report pdf=plan.pdf: pdf is not a format"),
    (["=plan.md"], "is not a format"),
    (["markdown"], "no file is given"),
    (["markdown="], "no file is given"),
    (["markdown=-"], "--format writes to standard output"),
    (["markdown=nowhere/plan.md"], "there is no folder nowhere"),
    (["markdown=."], "is not a regular file"),
    (["markdown=/dev/null"], "is not a regular file"),
    (["markdown=a.md", "html=./a.md"], "./a.md: a.md is also written by --report markdown=a.md"),
    (["json=lab.fleetplan"], "is also written by --out"),
], ids=" ".join)
def test_an_impossible_report_exits_with_64_before_the_cluster_is_contacted(
    cli, cluster, fleet_file: Path, tmp_path: Path, values: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = [part for value in values for part in ("--report", value)]
    result = cli("plan", "-f", fleet_file, "--out", "lab.fleetplan", *flags)
    assert result.code == 64
    assert words in result.err
    assert "formats: table, json, jsonl, markdown, html, github, sarif, junit" in result.err
    assert cluster.requests == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fleet.yaml"]


@pytest.mark.parametrize(("arguments", "words"), [
    (("plan", "-f", "ow/fleet.yaml", "--report", "html=ow/fleet.yaml"), "ow/fleet.yaml is read by this run"),
    (("plan", "-f", "ow", "--report", "html=./ow/fleet.yaml"), "ow/fleet.yaml is read by this run"),
    (("plan", "-f", "ow", "--report", "html=link.yaml"), "link.yaml is read by this run"),
    (("plan", "-f", "ow", "--inventory", "ow.json", "--report", "json=ow.json"), "ow.json is read by this run"),
    (("plan", "-f", "ow", "--inventory", "ow.json", "--out", "ow.json"), "--out ow.json: ow.json is read by this run"),
    (("plan", "-f", "ow", "--out", "ow/fleet.yaml"), "ow/fleet.yaml is read by this run"),
    (("validate", "-f", "ow", "--report", "junit=ow/fleet.yaml"), "ow/fleet.yaml is read by this run"),
    (("show", "ow.plan", "--report", "html=ow.plan"), "ow.plan is read by this run"),
    (("show", "ow.plan", "--inventory", "ow.json", "--report", "html=ow.json"), "ow.json is read by this run"),
    (("diff", "ow/fleet.yaml", "./ow.plan", "--report", "html=ow.plan"), "ow.plan is read by this run"),
    (("diff", "-f", "ow", "--report", "html=ow/fleet.yaml"), "ow/fleet.yaml is read by this run"),
    (("history", "-f", "ow", "--report", "html=ow/fleet.yaml"), "ow/fleet.yaml is read by this run"),
    (("ci", "review", "-f", "ow", "--inventory", "ow.json", "--out", "ow.json"), "ow.json is read by this run"),
    (("ci", "validate", "-f", "ow", "--report", "html=ow/fleet.yaml"), "ow/fleet.yaml is read by this run"),
    (("import", "ow/fleet.yaml", "-o", "ow/fleet.yaml"), "ow/fleet.yaml is read by this run"),
    (("import", "ow", "-o", "ow/fleet.yaml", "--force"), "ow/fleet.yaml is read by this run"),
    (("import", "ow", "--inventory-out", "link.yaml", "--force"), "--inventory-out link.yaml: link.yaml is read"),
], ids=" ".join)
def test_no_run_overwrites_its_own_inputs(
    cli, cluster: ClusterStandIn, fleet_file: Path, snapshot_file: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ow").mkdir()
    texts = {"ow/fleet.yaml": fleet_file.read_text(), "ow.json": snapshot_file.read_text(), "ow.plan": "a plan"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link.yaml").symlink_to("ow/fleet.yaml")
    result = cli(*arguments)
    assert (result.code, result.out) == (64, "")
    assert words in result.err
    assert cluster.requests == []
    assert {name: (tmp_path / name).read_text() for name in texts} == texts


def test_a_report_may_be_a_new_file_in_a_folder_of_fleet_files(
    cli, fleet_file: Path, snapshot_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "ow").mkdir()
    fleet_file = fleet_file.rename(tmp_path / "ow" / "fleet.yaml")
    report = fleet_file.with_name("plan.html")
    assert plan(cli, fleet_file.parent, snapshot_file, "--report", f"html={report}").code == 0
    assert report.exists()


def test_every_problem_is_reported_at_once(cli, fleet_file: Path) -> None:
    err = cli("plan", "-f", fleet_file, "--report", "pdf=x", "--report", "html=nowhere/x").err
    assert "pdf is not a format" in err
    assert "there is no folder nowhere" in err


def test_a_report_replaces_an_older_one_and_is_readable_by_others(
    cli, fleet_file: Path, snapshot_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "plan.md"
    path.write_text("an older report")
    path.chmod(0o600)
    plan(cli, fleet_file, snapshot_file, "--report", f"markdown={path}")
    assert "older" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_file_name_may_contain_an_equals_sign(cli, fleet_file: Path, snapshot_file: Path, tmp_path: Path) -> None:
    assert plan(cli, fleet_file, snapshot_file, "--report", f"json={tmp_path / 'a=b.json'}").code == 0
    assert (tmp_path / "a=b.json").exists()


def test_without_a_plan_no_report_is_written(cli, fleet_file: Path, snapshot_file: Path, tmp_path: Path) -> None:
    fleet_file.write_text("a: [")
    assert plan(cli, fleet_file, snapshot_file, "--report", f"json={tmp_path / 'plan.json'}").code == 1
    assert not (tmp_path / "plan.json").exists()


def test_annotations_name_files_from_the_root_of_the_checkout(
    cli, fleet_file: Path, snapshot_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    result = plan(cli, Path("../fleet.yaml"), snapshot_file, "--format", "github")
    assert "file=fleet.yaml,line=" in result.out


@pytest.mark.parametrize(("environ", "root"), [
    ({"GITHUB_WORKSPACE": "/w"}, "/w"), ({"CI_PROJECT_DIR": "/p"}, "/p"), ({}, "HERE"),
])
def test_the_root_is_the_runners_workspace_or_the_checkout(
    tmp_path: Path, environ: dict[str, str], root: str
) -> None:
    (tmp_path / ".git").write_text("gitdir: elsewhere")  # as in a worktree
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert repository_root(environ, tmp_path / "a" / "b") == root.replace("HERE", str(tmp_path))
