"""`fleetctl plan --base`: the effect of a change alone, in a real repository, on a snapshot of a cluster."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.entry import run
from fleetctl.documents.loading import load_plan

FLEET = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  models:
  - key: org/a
    replicas: 2
    workers: [{name: main, members: [{resources: {gpus: 8}, engine: {command: [a], env: {TOKEN: "hush-hush"}}}]}]
"""
MORE = """\
  - key: org/b
    replicas: 1
    priority: 9
    workers: [{name: main, members: [{resources: {gpus: 8}, engine: {command: [b]}}]}]
"""
FLAGS = ("-f", "fleet.yaml", "--inventory", "snapshot.json")


@pytest.fixture
def folder(tmp_path: Path, snapshot_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one model on main that fills both nodes, and a second model in the working tree."""
    for key in [key for key in os.environ if key.startswith("GIT_")]:
        monkeypatch.delenv(key)
    monkeypatch.delenv("FLEETCTL_NAMESPACE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "snapshot.json").write_text(snapshot_file.read_text())
    (folder / "fleet.yaml").write_text(FLEET)
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "one"]):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run(["git", *identity, "-C", str(folder), *command], check=True)
    (folder / "fleet.yaml").write_text(FLEET + MORE)
    monkeypatch.chdir(folder)
    return folder


DUE_ANYWAY = "the other 1 of 2 to create is due anyway"


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(["plan", *FLAGS, *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def change(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, err = plan(capsys, "--base", "main", "--format", "json", *arguments)
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)["change"]
    return found


def counts(found: dict[str, Any]) -> tuple[int, int, int, int]:
    return found["create"], found["alsoWithout"], found["noLonger"], found["blocked"]


def test_the_table_shows_the_effect_of_the_change_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = plan(capsys, "--base", "main")
    assert code == 0
    section = out[out.index("This change alone"):].split("\n\n")[0].splitlines()
    assert section[1:] == [
        f"  1 more to create, 1 no longer to create, 1 more blocked; {DUE_ANYWAY}.",
        "  * org/a: affected by another change: 1 fewer to create, 1 more blocked",
        "  + org/b: new in the file: 1 to create",
    ]
    assert "1 difference in the files since main" in out
    assert out.splitlines()[-3].endswith(": fleetctl diff main -f fleet.yaml")
    assert run(["diff", "main", "-f", "fleet.yaml", "--detailed-exitcode"]) == 2  # the suggested command


def test_the_document_has_the_change_with_its_revision(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = change(capsys)
    assert counts(found) == (1, 1, 1, 1)
    assert found["base"]["name"] == "main"
    assert len(found["base"]["commit"]) == 40
    assert {one["key"]: one["kind"] for one in found["models"]} == {"org/a": "sideEffect", "org/b": "added"}
    assert [one["model"] for one in found["differences"]] == ["org/b"]


def test_warnings_that_the_base_lacks_are_marked_even_where_lines_have_moved(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blank = "[b, '--port 8000']"
    (folder / "fleet.yaml").write_text("# moved\n" + FLEET + MORE.replace("command: [b]", f"command: {blank}"))
    code, out, err = plan(capsys, "--base", "main", "--format", "json")
    assert (code, err) == (0, "")
    assert [(one["code"], one["model"], one["source"]["line"], one.get("new", False))
            for one in json.loads(out)["fileWarnings"]] == [("FL070", "org/a", 9, False), ("FL071", "org/b", 13, True)]
    _, out, _ = plan(capsys, "--base", "main")
    assert out.count("FL071") == out.count("FL070") == 1
    assert out.index("New warnings of the fleet files") < out.index("FL071") < out.index("MODEL")
    assert out.index("which the base has, too") < out.index("FL070")
    _, out, _ = plan(capsys, "--format", "json")
    assert not any("new" in one for one in json.loads(out)["fileWarnings"])


def test_the_same_warning_a_second_time_is_new(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twice = FLEET.replace("workers: [", "workers: [{name: more, members: [{resources: {gpus: 1}, "
                          'engine: {command: [a], env: {TOKEN: "hush-hush-too"}}}]}, ')
    (folder / "fleet.yaml").write_text(twice)
    _, out, _ = plan(capsys, "--base", "main", "--format", "json")
    assert [one.get("new", False) for one in json.loads(out)["fileWarnings"]] == [False, True]


def test_a_saved_plan_keeps_the_change_and_a_valid_id(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan(capsys, "--base", "main", "--out", "saved")
    saved = load_plan((folder / "saved").read_text(), "saved")
    assert saved.change is not None
    assert saved.change.create == 1


def test_without_a_base_there_is_no_change(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(plan(capsys, "--format", "json")[1])["change"] is None


def test_targets_and_exclusions_apply_to_the_base_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert counts(change(capsys, "--target", "org/b")) == (1, 0, 0, 0)
    assert counts(change(capsys, "--exclude", "org/b")) == (0, 2, 0, 0)
    assert counts(change(capsys, "--target", "org/a", "--target", "org/b")) == (1, 1, 1, 1)
    [left_out] = change(capsys, "--target", "org/a")["models"]
    assert left_out["message"] == "new in the file: left out: not a target of this plan"


def test_in_another_namespace_the_change_creates_every_replica(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "fleet.yaml").write_text(FLEET.replace("spec:\n", "spec:\n  cluster: {namespace: blue}\n"))
    assert counts(change(capsys)) == (2, 0, 0, 0)
    assert counts(change(capsys, "--namespace", "fleet")) == (0, 2, 0, 0)  # the flag wins on both sides


def test_for_a_new_fleet_the_change_creates_every_replica(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "new.yaml").write_text(FLEET)
    code = run(["plan", "-f", "new.yaml", "--inventory", "snapshot.json", "--base", "main", "--format", "json"])
    assert code == 0
    assert counts(json.loads(capsys.readouterr().out)["change"]) == (2, 0, 0, 0)


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (("--base", "nope"), 1, "git has no revision 'nope'"),
    (("--base", "--out"), 1, "git has no revision '--out'"),
    (("--base", "main", "-f", "-"), 64, "standard input has no revisions"),
    (("--base", "./fleet.yaml"), 64, "--base ./fleet.yaml: expected a git revision, found a path"),
    (("--base", "fleet.yaml"), 64, "hint: to compare two files: fleetctl diff fleet.yaml NEW.yaml"),
    (("--base", ""), 64, "BASE is empty; is a variable unset?"),
    (("--base", " "), 64, "BASE is empty; is a variable unset?"),
    (("--base", "main..main"), 64, "--base takes one revision; the other side is the files on disk"),
    (("--base", "main..HEAD"), 64, "--base takes one revision"),
    (("--base", "main...main"), 64, "--base takes one revision"),
    (("--base", "...main"), 64, "--base takes one revision"),
])
def test_a_base_that_cannot_be_read_gives_no_plan(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...],
    code: int, words: str,
) -> None:
    monkeypatch.setattr("fleetctl.cli.process.read_stdin", ANOTHER.encode)
    found, out, err = plan(capsys, *arguments)
    assert (found, out) == (code, "")
    assert words in err


ANOTHER = FLEET.replace("org/a", "org/c")


def test_a_change_that_fixes_a_broken_base_is_planned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "fleet.yaml").write_text(FLEET.replace("replicas: 2", "replicas: -2"))
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qam", "x"], check=True)
    (folder / "fleet.yaml").write_text(FLEET)
    commit = subprocess.run(["git", "rev-parse", "main"], capture_output=True, text=True, check=True).stdout[:10]
    code, out, err = plan(capsys, "--base", "main", "--format", "json", "--detailed-exitcode")
    assert (code, out) == plan(capsys, "--format", "json", "--detailed-exitcode")[:2]
    assert code == 2
    assert json.loads(out)["change"] is None
    assert " ".join(err.split()) == (f"warning: the fleet at main ({commit}) cannot be read (1 problem), so the effect "
                                     "of the change alone is unknown")


def test_no_format_shows_a_secret_of_either_side(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "fleet.yaml").write_text(FLEET.replace("hush-hush", "hush-now"))
    for form in ("table", "json", "jsonl", "markdown", "html", "github", "sarif", "junit"):
        code, out, _ = plan(capsys, "--base", "main", "--format", form)
        assert code == 0
        assert "hush" not in out


def test_a_missing_revision_is_reported_before_the_cluster_is_contacted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = ["--address", "http://127.0.0.1:9"]
    assert run(["plan", "-f", "fleet.yaml", *nowhere, "--base", "mian"]) == 1
    captured = capsys.readouterr().err
    assert "git has no revision 'mian' here" in captured
    assert "did you mean main?" in captured


def test_a_change_says_what_it_adds_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The base has no prices, and what it would create is counted at those of the change."""
    priced = (FLEET + MORE).replace("spec:\n", "spec:\n  nodes: [{price: 12.50}]\n")
    (folder / "fleet.yaml").write_text(priced)
    code, out, err = plan(capsys, "--base", "main", "--format", "json")
    document = json.loads(out)
    assert (code, err, document["change"]["adds"]) == (0, "", 0)
    assert document["price"] == {"adds": 25_000_000, "total": 25_000_000}
    shown = " ".join(plan(capsys, "--base", "main")[1].split())
    assert shown.endswith("Adds 25 an hour (0 by the change alone); the fleet's replicas then cost 25 an hour")
    (folder / "fleet.yaml").write_text(priced.replace("replicas: 2", "replicas: 0"))
    assert change(capsys)["adds"] == -12_500_000


PRICED = """\
apiVersion: fleetctl/v1
kind: Fleet
metadata: {name: lab}
spec:
  nodes:
  - {selector: {kind: h100}, price: 4}
  - {selector: {kind: a100}, price: 8}
  models:
  - key: org/a
    replicas: 5
    variants:
    - {name: h100-fp8, workers: [{name: main, members: [{resources: {gpus: 1}, nodeSelector: {kind: h100},
                                                         engine: {command: [a, --fp8]}}]}]}
"""
A100 = """\
    - {name: a100, max: 3, workers: [{name: main, members: [{resources: {gpus: 2}, nodeSelector: {kind: a100},
                                                             engine: {command: [a]}}]}]}
"""


@pytest.fixture
def two_kinds(folder: Path) -> Path:
    """On main a model with one variant, for which three cards are free; one more variant in the working tree."""
    nodes = [{"id": kind, "name": kind, "labels": {"kind": kind}, "resources": {"total": {"GPU": cards, "CPU": 64}}}
             for kind, cards in (("h100", 4), ("a100", 8))]
    runs = {"model": "org/b", "replicaId": 0, "foreignId": None, "level": "HOT", "state": "ALIVE",
            "members": [{"group": "main", "nodeId": "h100", "gpus": 10_000}]}
    (folder / "snapshot.json").write_text(json.dumps({
        "formatVersion": "1.0", "kind": "Inventory", "observedAt": "2026-03-04T12:00:00Z", "source": "a test",
        "complete": True, "cluster": {"sessionId": "s"}, "nodes": nodes, "replicas": [runs]}))
    (folder / "fleet.yaml").write_text(PRICED)
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", *identity, "-C", str(folder), "commit", "-q", "-a", "-m", "two"], check=True)
    (folder / "fleet.yaml").write_text(PRICED + A100)
    return folder


def test_a_review_of_a_new_variant_says_in_under_ten_lines_what_happens_and_what_it_costs(
    two_kinds: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says = ("2 more to create, 2 fewer blocked; the other 3 of 5 to create are due anyway.",
            "2 more to create (now 3 as h100-fp8 and 2 as a100), 2 fewer blocked",
            "5 to create, 0 blocked, 0 held, 0 to remove",
            "Adds 7 an hour (4 by the change alone); the fleet's replicas then cost 7 an hour")
    _, out, _ = plan(capsys, "--base", "main")
    change_alone = out[out.index("This change alone"):].split("\n\n")[0].splitlines()
    conclusion = out[out.index("Plan: "):].splitlines()
    assert len(change_alone) + len(conclusion) < 10
    text = " ".join([*change_alone, *conclusion])
    assert [one for one in says if one not in text] == []

    _, out, _ = plan(capsys, "--base", "main", "--format", "markdown")
    beginning = out[:out.index("<details>")].splitlines()  # all that a reader of the comment sees first
    lines = [line for line in beginning if line and not line.startswith(("<!--", "| --", "| :--"))]
    assert len(lines) < 10
    text = " ".join(lines).replace("`", "")
    assert [one for one in says if one not in text] == []


def test_a_review_says_which_new_replicas_are_of_another_variant_and_what_that_saves(
    two_kinds: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (two_kinds / "fleet.yaml").write_text(PRICED.replace("replicas: 5", "replicas: 3"))
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", *identity, "-C", str(two_kinds), "commit", "-q", "-a", "-m", "three"], check=True)
    least = (PRICED + A100.replace("max: 3", "min: 2")).replace("replicas: 5", "replicas: 3")
    (two_kinds / "fleet.yaml").write_text(least)
    _, out, _ = plan(capsys, "--base", "main")
    assert "0 more to create; the 3 to create are due anyway, 2 of them as another variant than without" in out
    assert "~ org/a: 2 of 3 new replicas as a100, instead of h100-fp8\n" in out
    assert "Adds 5 an hour (2 by the change alone)" in out
    [effect] = change(capsys)["models"]
    assert effect["before"]["variants"] == {"h100-fp8": 3}
    assert effect["after"]["variants"] == {"h100-fp8": 1, "a100": 2}
