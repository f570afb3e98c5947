"""`fleetctl diff` as users and CI jobs run it: in a real repository, in every format, with its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fleetctl.cli.entry import run

SCHEMA = Path(__file__).parents[2] / "schemas" / "diff.schema.json"
FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/a
    replicas: 3
    workers:
    - name: main
      members:
      - resources: {gpus: 1}
        engine:
          command: [serve, a]
          args: [--port, $(FLEETCTL_PORT), --max-model-len, "8192"]
          env: {TOKEN: "hush-hush"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of a bare remote with the fleet on main, and a branch checked out with three differences."""
    for key in list(os.environ):
        if key.startswith("GIT_"):
            monkeypatch.delenv(key)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "t")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "t@example.com")
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch", "main", "remote.git")
    git(tmp_path, "clone", "--quiet", "remote.git", "work")
    work = tmp_path / "work"
    (work / "fleet.yaml").write_text(FLEET)
    git(work, "checkout", "--quiet", "-b", "main")
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", "one")
    git(work, "push", "--quiet", "origin", "main")
    git(work, "checkout", "--quiet", "-b", "feature")
    changed = FLEET.replace("replicas: 3", "replicas: 5").replace('"8192"', '"16384"').replace("hush-hush", "hush-now")
    (work / "fleet.yaml").write_text(changed)
    git(work, "commit", "--quiet", "-a", "-m", "two")
    monkeypatch.chdir(work)
    return work


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True).stdout


def diff(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(["diff", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


TABLE = """\
Fleet lab, from origin/main ({base}) to HEAD ({head})
Wanted: 1 models, 3 -> 5 replicas, 3 -> 5 GPUs

~ org/a
  additive   replicas: 3 -> 5  (fleet.yaml:7:15)
    up to 2 more replicas may be created
  drift      workers.main.members[0].engine.args  (fleet.yaml:14:61)
    - … --max-model-len 8192
    + … --max-model-len 16384
    running replicas keep the old spec and are reported as drift; new ones get the new spec
  drift      workers.main.members[0].engine.env.TOKEN: *** -> *** (a different value)  (fleet.yaml:15:24)
    the value changed and is not shown; running replicas keep the old value, new ones get the new value

additive: more may be created
drift: running replicas keep the old spec
Diff: 3 differences: 1 additive, 0 no effect, 2 drift, 0 held; nothing is ever removed
"""


def test_the_whole_diff_as_shown_on_a_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = diff(capsys, "origin/main", "HEAD", "-f", "fleet.yaml")
    commits = {"base": git(folder, "rev-parse", "main")[:10], "head": git(folder, "rev-parse", "HEAD")[:10]}
    assert out == TABLE.format(**commits).replace("1 models", "1 model")
    assert (code, err) == (0, "")


def test_the_document_matches_its_schema_and_is_complete(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = diff(capsys, "origin/main...", "-f", "fleet.yaml", "--format", "json")
    document = json.loads(out)
    jsonschema.Draft7Validator(closed(json.loads(SCHEMA.read_text()))).validate(document)
    assert document["kind"] == "FleetDiff"
    assert document["base"]["name"] == "origin/main...HEAD"
    assert document["base"]["commit"] == git(folder, "rev-parse", "main").strip()
    assert document["summary"] == {"additive": 1, "none": 0, "drift": 2, "held": 0}
    assert document["differences"][0] == {
        "model": "org/a", "path": "replicas", "kind": "changed", "effect": "additive", "old": 3, "new": 5,
        "oldSource": {"file": "fleet.yaml", "line": 7, "column": 15},
        "newSource": {"file": "fleet.yaml", "line": 7, "column": 15},
        "message": "up to 2 more replicas may be created"}
    assert "hush" not in out


def closed(schema: Any) -> Any:
    """The schema, but with undescribed keys forbidden."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    stricter = {key: closed(value) for key, value in schema.items()}
    return {**stricter, "additionalProperties": False} if "properties" in schema else stricter


@pytest.mark.parametrize(("arguments", "code"), [
    (("main", "-f", "fleet.yaml"), 0),
    (("main", "-f", "fleet.yaml", "--detailed-exitcode"), 2),
    (("-f", "fleet.yaml", "--detailed-exitcode"), 0),
    (("main", "main", "-f", "fleet.yaml", "--detailed-exitcode"), 0),
    (("nope", "-f", "fleet.yaml"), 1),
    (("main",), 64),
    (("main", "-f", "absent.yaml"), 1),
    (("main", "-f", "fleet.yaml", "--format", "pdf"), 64),
    (("main", "-f", "fleet.yaml", "--report", "markdown"), 64),
    (("main", "HEAD", "feature", "-f", "fleet.yaml"), 64),
    (("--output=x", "-f", "fleet.yaml"), 64),
    (("-f", "fleet.yaml", "--", "--output=x"), 1),
])
def test_each_outcome_has_its_exit_code_and_stream(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int
) -> None:
    found, out, err = diff(capsys, *arguments)
    assert found == code
    assert (out == "") == (code in (1, 64))
    assert (err == "") == (code in (0, 2))


def test_a_broken_side_is_reported_with_its_problems_and_without_a_diff(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "fleet.yaml").write_text(FLEET.replace("replicas: 3", "replicas: -1").replace("kind: Fleet", "kind: X"))
    git(folder, "commit", "--quiet", "-a", "-m", "broken")
    (folder / "fleet.yaml").write_text(FLEET.replace("[serve, a]", "[]"))
    code, out, err = diff(capsys, "-f", "fleet.yaml", "--report", "json=report.json")
    assert (code, out) == (1, "")
    assert "HEAD:fleet.yaml:2:7: error FL024" in err
    assert "HEAD:fleet.yaml:7:15: error FL023" in err
    assert "\nfleet.yaml:13:20: error FL023" in err
    assert "3 problems in the fleet files" in err
    assert not (folder / "report.json").exists()


def test_one_run_writes_several_reports(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    formats = ("table", "json", "jsonl", "markdown", "html", "github", "sarif", "junit")
    reports = [argument for one in formats for argument in ("--report", f"{one}={folder / one}")]
    code, out, _ = diff(capsys, "main", "-f", "fleet.yaml", *reports)
    assert code == 0
    assert (folder / "table").read_text() == out
    for one in formats:
        text = (folder / one).read_text()
        assert "replicas" in text
        assert "hush" not in text


def test_annotations_point_at_lines_of_the_new_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = diff(capsys, "main", "-f", "fleet.yaml", "--format", "github")
    assert "::notice file=fleet.yaml,line=7,col=15,title=ADDITIVE%3A org/a::replicas: 3 -> 5;" in out
    assert out.index("::warning") < out.index("::notice")


def test_two_files_are_compared_without_git(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    (tmp_path / "old.yaml").write_text(FLEET)
    (tmp_path / "new.yaml").write_text(FLEET.replace("replicas: 3", "replicas: 0"))
    code, out, _ = diff(capsys, str(tmp_path / "old.yaml"), str(tmp_path / "new.yaml"), "--detailed-exitcode")
    assert code == 2
    assert "held       replicas: 3 -> 0" in out


def test_nothing_in_a_file_reaches_the_terminal_as_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = FLEET.replace('"8192"', '"\\e[31mred\\u202e::error::x\\r\\n"')
    (tmp_path / "old.yaml").write_text(FLEET)
    (tmp_path / "new.yaml").write_text(hostile)
    for form in ("table", "github", "markdown", "jsonl"):
        _, out, _ = diff(capsys, str(tmp_path / "old.yaml"), str(tmp_path / "new.yaml"), "--format", form)
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert not any(line.startswith("::error") for line in out.splitlines())


@pytest.mark.slow
def test_a_large_change_is_cut_in_the_table_and_complete_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, _, item = FLEET.partition("  - key: org/a\n")
    many = [head + "".join(f"  - key: org/m{number}\n{item}" for number in range(150)).replace("replicas: 3", target)
            for target in ("replicas: 3", "replicas: 4")]
    for name, text in zip(("old.yaml", "new.yaml"), many, strict=True):
        (tmp_path / name).write_text(text)
    paths = (str(tmp_path / "old.yaml"), str(tmp_path / "new.yaml"))
    _, table, _ = diff(capsys, *paths)
    assert "and 50 more models (--format json lists them)" in table
    assert "Diff: 150 differences: 150 additive" in table
    assert len(json.loads(diff(capsys, *paths, "--format", "json")[1])["differences"]) == 150
