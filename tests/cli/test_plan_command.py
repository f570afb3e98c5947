"""`fleetctl plan` from flags to exit code, on a snapshot, in this process."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from fleetctl.cli.entry import run
from fleetctl.documents.canonical import plan_id
from fleetctl.documents.loading import load_plan
from fleetctl.errors import DocumentError
from fleetctl.workflow.planning import expiry


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FLEETCTL_ADDRESS", "FLEETCTL_NAMESPACE", "FLEETCTL_DEBUG", "NO_COLOR", "FORCE_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def plan(fleet: Path, snapshot: Path, *flags: str) -> int:
    return run(["plan", "-f", str(fleet), "--inventory", str(snapshot), *flags])


def test_the_table_goes_to_standard_output_and_nothing_else_does(
    fleet_file: Path, snapshot_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(fleet_file, snapshot_file) == 0
    out, err = capsys.readouterr()
    assert "+ org/one/" in out
    assert "8 GPUs on" in out
    assert out.splitlines()[-1] == "Plan: 3 to create, 1 blocked, 0 held, 0 to remove (fleetctl never removes)"
    assert err == ""


def test_the_detailed_code_is_3_when_something_is_blocked(fleet_file: Path, snapshot_file: Path) -> None:
    assert plan(fleet_file, snapshot_file, "--detailed-exitcode") == 3


def test_the_detailed_code_is_2_when_everything_fits(fleet_file: Path, snapshot_file: Path) -> None:
    assert plan(fleet_file, snapshot_file, "--detailed-exitcode", "--target", "org/two") == 2


def test_the_detailed_code_is_0_when_there_is_nothing_to_do(fleet_file: Path, snapshot_file: Path) -> None:
    text = fleet_file.read_text()
    fleet_file.write_text(text.replace("replicas: 3", "replicas: 0").replace("replicas: 1", "replicas: 0"))
    assert plan(fleet_file, snapshot_file, "--detailed-exitcode") == 0


def test_the_document_has_the_detailed_code_with_or_without_the_flag(
    fleet_file: Path, snapshot_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(fleet_file, snapshot_file, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["exitCode"] == 3


def test_a_saved_plan_is_whole_and_private_to_its_owner(fleet_file: Path, snapshot_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "lab.fleetplan"
    old = os.umask(0)
    try:
        assert plan(fleet_file, snapshot_file, "--out", str(out)) == 0
    finally:
        os.umask(old)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    document = json.loads(out.read_text())
    assert document["planId"] == plan_id(document)
    assert "hush-hush" in out.read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".lab")] == []


def test_printed_output_never_has_an_env_value(
    fleet_file: Path, snapshot_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags in ((), ("--format", "json"), ("--out", str(tmp_path / "p"))):
        plan(fleet_file, snapshot_file, *flags)
        out, err = capsys.readouterr()
        assert "hush-hush" not in out + err
    plan(fleet_file, snapshot_file, "--format", "json")
    document = json.loads(capsys.readouterr().out)
    assert document["masked"] is True


def test_without_env_the_json_is_the_saved_document(
    fleet_file: Path, snapshot_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet_file.write_text(fleet_file.read_text().replace(', env: {WORD: "hush-hush", FROM: {fromNode: HF_TOKEN}}', ""))
    out = tmp_path / "lab.fleetplan"
    plan(fleet_file, snapshot_file, "--out", str(out), "--format", "json")
    assert capsys.readouterr().out == out.read_text()


def test_equal_input_gives_equal_bytes(
    fleet_file: Path, snapshot_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan(fleet_file, snapshot_file, "--format", "json")
    first = capsys.readouterr().out
    plan(fleet_file, snapshot_file, "--format", "json")
    assert capsys.readouterr().out == first


def test_saving_replaces_an_older_file_atomically(fleet_file: Path, snapshot_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "lab.fleetplan"
    out.write_text("an older plan")
    out.chmod(0o644)
    before = out.stat().st_ino
    plan(fleet_file, snapshot_file, "--out", str(out))
    assert out.stat().st_ino != before
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


@pytest.mark.parametrize("target", ["/dev/null", ".", "missing/folder/plan", "-"])
def test_a_plan_is_not_saved_in_an_impossible_place(
    fleet_file: Path, snapshot_file: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(fleet_file, snapshot_file, "--out", target) in {1, 64}
    assert "error: " in capsys.readouterr().err


def test_an_incomplete_inventory_is_not_planned_on(
    fleet_file: Path, snapshot_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {**json.loads(snapshot_file.read_text()), "complete": False, "warnings": ["actors: cut off"]}
    snapshot_file.write_text(json.dumps(document))
    out = tmp_path / "lab.fleetplan"
    assert plan(fleet_file, snapshot_file, "--out", str(out), "--detailed-exitcode") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "actors: cut off" in captured.err
    assert not out.exists()


def test_a_warning_of_the_inventory_goes_to_standard_error(
    fleet_file: Path, snapshot_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot_file.write_text(json.dumps({**json.loads(snapshot_file.read_text()), "warnings": ["one card twice"]}))
    assert plan(fleet_file, snapshot_file, "--format", "json") == 0
    captured = capsys.readouterr()
    assert "warning: one card twice" in captured.err
    json.loads(captured.out)


def test_every_problem_of_a_broken_fleet_file_is_shown_with_its_place(
    fleet_file: Path, snapshot_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet_file.write_text(fleet_file.read_text().replace("replicas: 3", "replica: 3").replace("gpus: 8", "gpus: -1"))
    assert plan(fleet_file, snapshot_file, "--detailed-exitcode") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{fleet_file}:7:5: error FL020" in captured.err
    assert captured.err.count("error FL0") >= 2
    assert "problems in the fleet files" in captured.err


@pytest.mark.parametrize("text", ["", "null\n", "[]\n", "apiVersion: fleetctl/v1\n", "\x00", "a: [\n"])
def test_a_broken_or_empty_fleet_file_is_an_error_and_no_plan(
    fleet_file: Path, snapshot_file: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet_file.write_text(text)
    out = tmp_path / "lab.fleetplan"
    assert plan(fleet_file, snapshot_file, "--out", str(out)) == 1
    assert capsys.readouterr().out == ""
    assert not out.exists()


def test_a_target_that_names_no_model_is_an_error_with_the_nearest_spelling(
    fleet_file: Path, snapshot_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(fleet_file, snapshot_file, "--target", "org/onee") == 1
    assert "org/one" in capsys.readouterr().err


def test_standard_input_is_read_once(fleet_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "-f", "-", "--inventory", "-"]) == 64
    assert "standard input" in capsys.readouterr().err


def test_the_namespace_comes_from_flag_environment_or_file(
    fleet_file: Path, snapshot_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLEETCTL_NAMESPACE", "from-env")
    plan(fleet_file, snapshot_file, "--format", "json")
    assert json.loads(capsys.readouterr().out)["fleet"]["namespace"] == "from-env"
    plan(fleet_file, snapshot_file, "--format", "json", "--namespace", "from-flag")
    assert json.loads(capsys.readouterr().out)["fleet"]["namespace"] == "from-flag"


@pytest.mark.parametrize(("observed", "expires"), [
    ("2026-03-04T12:00:00Z", "2026-03-05T12:00:00Z"),
    ("2026-03-04T12:00:00+02:00", "2026-03-05T12:00:00+02:00"),
    ("yesterday", None), ("", None), ("9999-12-31T12:00:00Z", None),
])
def test_a_plan_expires_a_day_after_its_inventory(observed: str, expires: str | None) -> None:
    assert expiry(observed) == expires


def test_a_saved_plan_can_be_loaded_and_a_printed_one_says_why_not(
    fleet_file: Path, snapshot_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "lab.fleetplan"
    plan(fleet_file, snapshot_file, "--out", str(out), "--format", "json")
    assert load_plan(out.read_text(), where=str(out)).exit_code == 3
    with pytest.raises(DocumentError, match="masked"):
        load_plan(capsys.readouterr().out, where="standard input")


def test_a_plan_of_an_old_snapshot_is_saved_with_a_warning(
    fleet_file: Path, snapshot_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "the lab.fleetplan"
    assert plan(fleet_file, snapshot_file, "--out", str(out)) == 0
    err = capsys.readouterr().err
    assert "`fleetctl apply` will refuse it" in err
    assert "expired at 2026-03-05T12:00:00Z" in err
    assert "run it with" not in err
    fresh = json.loads(snapshot_file.read_text()) | {"observedAt": "2126-03-04T12:00:00Z"}
    snapshot_file.write_text(json.dumps(fresh))
    plan(fleet_file, snapshot_file, "--out", str(out))
    assert f"run it with `fleetctl apply '{out}'` until 2126-03-05T12:00:00Z" in capsys.readouterr().err


def test_the_lifetime_of_a_plan_can_be_set(
    fleet_file: Path, snapshot_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(fleet_file, snapshot_file, "--format", "json", "--expires", "1h30m") == 0
    assert json.loads(capsys.readouterr().out)["expiresAt"] == "2026-03-04T13:30:00Z"


@pytest.mark.parametrize("value", ["0s", "500ms", "31d", "soon", "-1h", ""])
def test_a_useless_expiry_is_a_usage_error(
    fleet_file: Path, snapshot_file: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(fleet_file, snapshot_file, "--expires", value) == 64
    assert "--expires" in capsys.readouterr().err


@pytest.fixture
def refused_fleet(fleet_file: Path) -> Path:
    """A fleet that wants three new replicas, with a policy that allows two."""
    fleet_file.write_text(fleet_file.read_text().replace("spec:\n", "spec:\n  policy:\n    maxNewReplicas: 2\n"))
    return fleet_file


@pytest.mark.parametrize(("flags", "code"), [
    ([], 0), (["--detailed-exitcode"], 4), (["--detailed-exitcode", "--force"], 3),
    (["--detailed-exitcode", "--exclude", "org/one"], 2),
], ids=str)
def test_a_refused_plan_has_the_detailed_code_4_and_is_shown_in_full(
    refused_fleet: Path, snapshot_file: Path, flags: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(refused_fleet, snapshot_file, *flags) == code
    out = capsys.readouterr().out
    assert "Would create" in out
    assert ("spec.policy.maxNewReplicas:2at" in "".join(out.split())) is ("--exclude" not in flags)


def test_the_place_in_a_refusal_is_the_line_of_the_policy(
    refused_fleet: Path, snapshot_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan(refused_fleet, snapshot_file, "--format", "json")
    [finding] = json.loads(capsys.readouterr().out)["policy"]
    assert finding["source"] == {"file": str(refused_fleet), "line": 6, "column": 21}


def test_hypothetical_plans_are_not_refused(
    refused_fleet: Path, snapshot_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["what-if", "-f", str(refused_fleet), "--inventory", str(snapshot_file), "--scale", "org/one=2",
                "--detailed-exitcode"])
    assert code == 2
