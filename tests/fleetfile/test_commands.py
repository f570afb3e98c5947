"""validate, schema and fmt as a user runs them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from .fleets import fleet, model

UNTIDY = fleet().replace("kind: Fleet\n", "").replace("apiVersion", "kind: Fleet\napiVersion")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "fleets" / "lab.yaml"
    found.parent.mkdir()
    found.write_text(fleet())
    return found


def test_validate_prints_a_summary_of_a_valid_fleet(run_cli, path):
    done = run_cli("validate", "-f", path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "valid: fleet lab: 1 model, 1 replica wanted\n"


def test_validate_prints_every_problem_and_exits_1(run_cli, path):
    path.write_text(fleet(model(replicas="-1"), model(priority="high", replica="1")))
    done = run_cli("validate", "-f", path)
    assert done.returncode == 1
    assert f"{path}:7:15: error FL023: replicas is -1, out of range" in done.stdout
    assert "did you mean replicas?" in done.stdout
    assert "FL040" in done.stdout
    assert done.stderr == "error: 4 errors\n"


def test_validate_exits_0_on_warnings_alone(run_cli, path):
    path.write_text(fleet(model(placement="{sameLabel: rack}")))
    done = run_cli("validate", "-f", path)
    assert done.returncode == 0
    assert "warning FL061" in done.stdout
    assert "1 warning" in done.stderr


def test_validate_json_is_a_document(run_cli, path):
    done = run_cli("validate", "-f", path, "--format", "json")
    assert json.loads(done.stdout) == {"valid": True, "problems": []}
    path.write_text(fleet(model(replicas="-1")))
    done = run_cli("validate", "-f", path, "--format", "json")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert document["valid"] is False
    assert [problem["code"] for problem in document["problems"]] == ["FL023"]


def test_validate_reads_standard_input(run_cli):
    assert run_cli("validate", "-f", "-", stdin=fleet()).returncode == 0
    assert "<stdin>:1:1: error FL007" in run_cli("validate", "-f", "-", stdin="").stdout


def test_control_characters_of_a_file_do_not_reach_the_terminal(run_cli, path):
    path.write_text(fleet(model(key='"a\\e[31m[bold]b"')))
    done = run_cli("validate", "-f", path)
    assert "\x1b" not in done.stdout
    assert "[bold]" in done.stdout


@pytest.mark.parametrize("name", ["fleet", "inventory", "plan", "event"])
def test_schema_prints_the_committed_schema(run_cli, name):
    committed = Path(__file__).parents[2] / "schemas" / f"{name}.schema.json"
    assert run_cli("schema", name).stdout == committed.read_text()


def test_schema_of_something_else_is_an_error(run_cli):
    assert run_cli("schema", "moon").returncode == 1


def test_fmt_writes_in_place_keeps_the_mode_and_follows_a_link(run_cli, path):
    path.write_text(UNTIDY)
    path.chmod(0o640)
    link = path.parent / "link.yml"
    link.symlink_to(path)
    done = run_cli("fmt", link)
    assert (done.returncode, done.stdout) == (0, "")
    assert path.read_text() == fleet()
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [entry.name for entry in path.parent.iterdir() if entry.name.startswith(".")] == []


def test_fmt_does_not_write_a_formatted_file(run_cli, path):
    before = path.stat().st_mtime_ns
    assert run_cli("fmt", path.parent).returncode == 0
    assert path.stat().st_mtime_ns == before


def test_fmt_check_names_unformatted_files_and_writes_nothing(run_cli, path):
    assert run_cli("fmt", "--check", path).returncode == 0
    path.write_text(UNTIDY)
    done = run_cli("fmt", "--check", path.parent)
    assert (done.returncode, done.stdout) == (1, f"{path}\n")
    assert path.read_text() == UNTIDY


def test_fmt_diff_shows_the_changes_and_writes_nothing(run_cli, path):
    path.write_text(UNTIDY)
    done = run_cli("fmt", "--diff", path)
    assert done.returncode == 0
    assert "-apiVersion: fleetctl/v1\n" in done.stdout
    assert "+apiVersion: fleetctl/v1\n" in done.stdout
    assert run_cli("fmt", "--diff", "--check", path).returncode == 1
    assert path.read_text() == UNTIDY


def test_fmt_formats_standard_input_to_standard_output(run_cli):
    done = run_cli("fmt", "-", stdin=UNTIDY)
    assert (done.returncode, done.stdout) == (0, fleet())


def test_fmt_does_not_write_an_invalid_file_and_formats_the_others(run_cli, path):
    broken = path.parent / "broken.yaml"
    broken.write_text("models: [\n")
    path.write_text(UNTIDY)
    done = run_cli("fmt", path.parent)
    assert done.returncode == 1
    assert f"{broken}:2:1: error FL008" in done.stderr
    assert broken.read_text() == "models: [\n"
    assert path.read_text() == fleet()
