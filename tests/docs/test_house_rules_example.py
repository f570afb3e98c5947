"""The example of docs/house-rules.md: the fleet obeys its rules, and a broken copy prints the output on the page."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from fleetctl.cli.entry import run
from fleetctl.fleetfile.load import inspect_fleet

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "fleets" / "house-rules"
PAGE = (ROOT / "docs" / "house-rules.md").read_text()
BREAKING = [("meta-llama/Llama-3.1-8B-Instruct", "llama"), ("replicas: 4", "replicas: 40"), (":v0.11.0", ":latest"),
            ("{fromNode: HF_TOKEN}", "hf_secret")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example, as the working directory."""
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_obeys_its_rules() -> None:
    assert inspect_fleet([str(EXAMPLE / "fleet.yaml")]).problems == ()


def test_a_broken_copy_prints_the_output_on_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = (folder / "fleet.yaml").read_text()
    for old, new in BREAKING:
        assert old in fleet
        fleet = fleet.replace(old, new)
    (folder / "fleet.yaml").write_text(fleet)
    assert run(["validate", "-f", "fleet.yaml"]) == 1
    out, err = capsys.readouterr()
    printed = re.search(r"^\$ fleetctl validate -f fleet.yaml\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    assert printed is not None
    assert out + err == printed[1]


@pytest.mark.parametrize(("old", "new", "message"), [
    ("readiness: {http: {path: /health}}", "workdir: /tmp", "an engine needs a readiness probe"),
    ("replicas: 4", "replicas: 4\n    priority: 900", "priorities above 100 belong to the platform team"),
    ("  models:", "  defaults: {priority: 900}\n  models:", "priorities above 100 belong to the platform team"),
])
def test_each_rule_of_the_example_is_enforced(folder: Path, old: str, new: str, message: str) -> None:
    fleet = (folder / "fleet.yaml").read_text()
    (folder / "fleet.yaml").write_text(fleet.replace(old, new))
    assert [one.message for one in inspect_fleet(["fleet.yaml"]).problems] == [message]


def test_the_first_rule_of_the_page_is_a_schema_that_finds_a_violation(folder: Path) -> None:
    found = re.search(r"^```json\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    json.loads(found[1])
    (folder / "house-rules.schema.json").write_text(found[1])
    (folder / "fleet.yaml").write_text((folder / "fleet.yaml").read_text().replace("replicas: 4", "replicas: 17"))
    [problem] = inspect_fleet(["fleet.yaml"]).problems
    assert (problem.code, problem.line) == ("FL038", 12)
