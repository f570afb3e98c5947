"""`fleetctl render` as a user runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from published_schemas import validator_of

from fleetctl.documents.answers import RenderedFleet
from fleetctl.documents.schemas import json_schema

BASE = """\
apiVersion: fleetctl/v1
kind: Fleet
spec:
  models:
  - key: org/one
    workers:
    - name: main
      members:
      - resources: {gpus: 8}
        engine: {command: [serve, one], env: {TOKEN: "hush-hush", FROM: {fromNode: HF_TOKEN}}}
"""
OVER = """\
apiVersion: fleetctl/v1
kind: Fleet
extends: base/models.yaml
metadata: {name: lab}
spec:
  models:
  - {key: org/one, replicas: 3}
"""


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "models.yaml").write_text(BASE)
    path = tmp_path / "prod.yaml"
    path.write_text(OVER)
    return path


def test_each_line_ends_with_its_source_and_secrets_are_masked(run_cli, overlay):
    done = run_cli("render", "-f", overlay)
    assert (done.returncode, done.stderr) == (0, "")
    origins = dict(re.split(r" +# ", line) for line in done.stdout.splitlines()[1:])
    assert origins["    replicas: 3"] == f"{overlay}:7"
    assert origins["      - resources: {gpus: 8}"] == f"{overlay.parent}/base/models.yaml:9"
    assert len({line.index(" # ") for line in done.stdout.splitlines()[1:] if len(line.split(" # ")[0]) < 72}) == 1
    assert "hush-hush" not in done.stdout
    assert done.stdout.startswith("# Values of env are masked")


def test_output_with_its_environment_is_a_fleet_file(run_cli, overlay):
    plain = run_cli("render", "-f", overlay, "--no-origin", "--show-env").stdout
    assert "#" not in plain
    assert run_cli("validate", "-f", "-", stdin=plain).stderr == (
        "valid: fleet lab: 1 model, 3 replicas wanted, 1 warning\n")  # a literal TOKEN
    assert run_cli("render", "-f", "-", "--no-origin", "--show-env", stdin=plain).stdout == plain
    assert run_cli("fmt", "-", stdin=plain).stdout == plain


def test_a_masked_fleet_is_refused_wherever_it_is_sent(run_cli, overlay, snapshot_file):
    masked = run_cli("render", "-f", overlay).stdout
    done = run_cli("plan", "-f", "-", "--inventory", snapshot_file, stdin=masked)
    assert (done.returncode, done.stdout) == (1, "")
    assert "masked by `fleetctl render`" in done.stderr


def test_json_has_the_document_and_the_place_of_each_value(run_cli, overlay):
    done = run_cli("render", "-f", overlay, "--format", "json")
    document = json.loads(done.stdout)
    validator_of(RenderedFleet).validate(document)
    assert document["masked"] is True
    assert "hush-hush" not in done.stdout
    assert list(document["fleet"]) == ["apiVersion", "kind", "metadata", "spec"]
    assert [Path(file["path"]).name for file in document["files"]] == ["prod.yaml", "models.yaml"]
    assert document["origins"]["spec.models[0].replicas"] == {"file": str(overlay), "line": 7, "column": 30}
    assert document["origins"]["spec.models[0].workers[0].members[0].resources.gpus"]["line"] == 9
    result = json.loads(run_cli("render", "-f", overlay, "--format", "json", "--show-env").stdout)
    assert result["masked"] is False
    jsonschema.Draft7Validator(json_schema("fleet")).validate(result["fleet"])


def test_a_broken_fleet_is_not_rendered_and_each_problem_has_its_place(run_cli, overlay):
    overlay.write_text(OVER.replace("replicas: 3", "replicas: many"))
    done = run_cli("render", "-f", overlay)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{overlay}:7:30: error FL022" in done.stderr


def test_the_page_about_composition_shows_the_real_output(run_cli, monkeypatch):
    root = Path(__file__).parents[2]
    page = (root / "docs" / "composition.md").read_text()
    result = page.partition("$ fleetctl render -f prod.yaml\n")[2].partition("```")[0]
    monkeypatch.chdir(root / "fleets" / "environments")
    assert run_cli("render", "-f", "prod.yaml").stdout == result


def test_secrets_in_arguments_are_masked_and_the_output_cannot_be_loaded(run_cli, overlay):
    base = overlay.parent / "base" / "models.yaml"
    base.write_text(BASE.replace("serve, one", "serve, one, --api-key, hush-key, --token=hush-token"))
    text = run_cli("render", "-f", overlay, "--no-origin").stdout
    assert "hush" not in text
    assert '--api-key, !masked "***", !masked "--token=***"' in text
    assert run_cli("validate", "-f", "-", stdin=text).returncode == 1
    shown = json.loads(run_cli("render", "-f", overlay, "--format", "json").stdout)
    assert shown["masked"] is True
    assert "hush" not in json.dumps(shown)
    assert "hush-key, --token=hush-token" in run_cli("render", "-f", overlay, "--no-origin", "--show-env").stdout
