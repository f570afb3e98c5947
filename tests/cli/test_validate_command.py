"""`fleetctl validate` in the formats for reviews; its lines for users are tested with the fleet file."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fleetctl.cli.entry import run

BROKEN = "apiVersion: fleetctl/v1\nkind: Fleet\nmetadata: {name: lab}\nspec:\n  models:\n  - key: x\n    replica: 2\n"


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A broken fleet file in a folder of a repository, which is the working directory."""
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "deploy"
    folder.mkdir()
    (folder / "fleet.yaml").write_text(BROKEN)
    monkeypatch.chdir(folder)
    for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return "fleet.yaml"


def test_annotations_name_the_file_from_the_root_of_the_repository(
    broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["validate", "-f", broken, "--format", "github"]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("::error file=deploy/fleet.yaml,line=6,col=5,title=FL021")
    assert second.startswith("::error file=deploy/fleet.yaml,line=7,col=5,title=FL020")
    assert last == "::notice title=The fleet files have errors::2 errors"


def test_one_run_writes_several_reports_beside_the_table(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    reports = ["--report", "sarif=out.sarif", "--report", "junit=out.xml", "--report", "markdown=out.md"]
    assert run(["validate", "-f", broken, *reports]) == 1
    assert capsys.readouterr().out.startswith("fleet.yaml:6:5: error FL021: ")
    results = json.loads(Path("out.sarif").read_text())["runs"][0]["results"]
    assert [one["ruleId"] for one in results] == ["FL021", "FL020"]
    suites = ElementTree.fromstring(Path("out.xml").read_text())
    assert (suites.get("tests"), suites.get("failures")) == ("1", "1")
    assert "| errors | warnings |\n| --: | --: |\n| 2 | 0 |\n" in Path("out.md").read_text()


def test_sound_files_are_a_passed_junit_test_case(fleet_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "-f", str(fleet_file), "--format", "junit"]) == 0
    out, err = capsys.readouterr()
    suites = ElementTree.fromstring(out)
    assert (suites.get("tests"), suites.get("failures")) == ("1", "0")
    assert err == ""


def test_the_last_line_goes_to_standard_error(
    fleet_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["validate", "-f", str(fleet_file)]) == 0
    assert capsys.readouterr() == ("", "valid: fleet lab: 2 models, 4 replicas wanted\n")


def test_subfolders_are_not_read_and_are_reported(
    fleet_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("other", "empty"):
        (fleet_file.parent / name).mkdir()
    (fleet_file.parent / "other" / "fleet.yaml").write_text(BROKEN)
    assert run(["validate", str(fleet_file.parent)]) == 0
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"note: {fleet_file.parent}: subfolders were not read, as each is a fleet of its own: other"]
