from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import run_here

from fleetctl.fleetfile.sources import STDIN_NAME
from fleetctl.workflow.planning import git_facts


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    identity = {f"GIT_{role}_{field}": "t@example.org" for role in ("AUTHOR", "COMMITTER")
                for field in ("NAME", "EMAIL")}
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1", **identity}


@pytest.fixture
def repository(tmp_path: Path, environ: dict[str, str]) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "fleet.yaml").write_text("a: 1\n")
    (folder / "notes.txt").write_text("x\n")
    for command in (["init", "-q", "-b", "trunk"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-C", folder, *command], env=environ, check=True, capture_output=True)
    return folder


def test_commit_and_branch_are_read(repository: Path, environ: dict[str, str]) -> None:
    facts = git_facts([str(repository / "fleet.yaml")], environ)
    assert facts is not None
    assert (len(facts.commit), facts.branch, facts.dirty) == (40, "trunk", False)


def test_a_branch_name_that_is_not_utf8_is_escaped(repository: Path, environ: dict[str, str]) -> None:
    subprocess.run(["git", "-C", repository, "checkout", "-q", "-b", b"x\xff"], env=environ, check=True)
    assert git_facts([str(repository / "fleet.yaml")], environ).branch == r"x\xff"


def test_only_a_changed_or_new_fleet_file_is_dirty(repository: Path, environ: dict[str, str]) -> None:
    (repository / "notes.txt").write_text("changed\n")
    assert git_facts([str(repository / "fleet.yaml")], environ).dirty is False
    (repository / "fleet.yaml").write_text("a: 2\n")
    assert git_facts([str(repository / "fleet.yaml")], environ).dirty is True
    (repository / "new.yaml").write_text("a: 2\n")
    assert git_facts([str(repository / "new.yaml")], environ).dirty is True


def test_a_fleet_file_that_git_ignores_is_in_no_commit(repository: Path, environ: dict[str, str]) -> None:
    (repository / ".git" / "info" / "exclude").write_text("build/\n")
    (repository / "build").mkdir()
    (repository / "build" / "fleet.yaml").write_text("a: 2\n")
    assert git_facts([str(repository / "fleet.yaml")], environ).dirty is False
    assert git_facts([str(repository / "build" / "fleet.yaml")], environ).dirty is True


def test_a_detached_head_has_no_branch(repository: Path, environ: dict[str, str]) -> None:
    subprocess.run(["git", "-C", repository, "checkout", "-q", "--detach"], env=environ, check=True)
    assert git_facts([str(repository / "fleet.yaml")], environ).branch is None


def test_reading_the_facts_writes_nothing_into_the_repository(repository: Path, environ: dict[str, str]) -> None:
    index = repository / ".git" / "index"
    os.utime(repository / "fleet.yaml", (1, 1))
    before = index.read_bytes()
    git_facts([str(repository / "fleet.yaml")], environ)
    assert index.read_bytes() == before


def test_without_git_or_a_repository_there_are_no_facts(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "empty").mkdir()
    assert git_facts([str(tmp_path / "fleet.yaml")], environ) is None
    assert git_facts([str(tmp_path / "missing" / "fleet.yaml")], environ) is None
    assert git_facts([str(tmp_path / "fleet.yaml")], {**environ, "PATH": str(tmp_path / "empty")}) is None


def test_a_repository_without_a_commit_has_no_facts(tmp_path: Path, environ: dict[str, str]) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], env=environ, check=True)
    assert git_facts([str(tmp_path / "fleet.yaml")], environ) is None


def test_standard_input_has_no_git_facts(
    repository: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    assert git_facts([STDIN_NAME], environ) is None
    facts = git_facts([STDIN_NAME, "fleet.yaml"], environ)
    assert facts is not None
    assert facts.dirty is False


def test_a_checkout_of_another_user_says_once_why_the_plan_names_no_commit(
    repository: Path, environ: dict[str, str], snapshot_file: Path, fleet_file: Path
) -> None:
    (repository / "fleet.yaml").write_bytes(fleet_file.read_bytes())
    inputs = ("plan", "-f", str(repository / "fleet.yaml"), "--inventory", str(snapshot_file))
    foreign = {**environ, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    done = run_here(*inputs, env=foreign)
    assert done.returncode == 0
    assert done.stderr.count("the plan names no commit: ") == 1
    assert f"{repository} belongs to another user (uid " in done.stderr
    assert f"if you trust it: git config --global --add safe.directory {repository}" in done.stderr
    (repository.parent / ".gitconfig").write_text(f"[safe]\n\tdirectory = {repository}\n")
    trusted = run_here(*inputs, env=foreign)
    assert (trusted.returncode, trusted.stderr) == (0, "")
    assert " at " in trusted.stdout.splitlines()[0], "the plan names its commit"


@pytest.mark.parametrize(("break_it", "why"), [
    (lambda git: (git / "HEAD").unlink(), "is neither a git folder nor a link to one"),
    (lambda git: (git / "index").write_bytes(b"no index"), "git status: "),
])
def test_any_other_reason_why_git_cannot_tell_is_given(
    repository: Path, environ: dict[str, str], break_it: Callable[[Path], object], why: str
) -> None:
    break_it(repository / ".git")
    said: list[str] = []
    assert git_facts([str(repository / "fleet.yaml")], environ, said.append) is None
    [text] = said
    assert why in text


def test_a_folder_without_a_repository_or_a_commit_is_nothing_to_report(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    said: list[str] = []
    assert git_facts([str(tmp_path / "fleet.yaml")], environ, said.append) is None
    subprocess.run(["git", "init", "-q", tmp_path], env=environ, check=True)
    assert git_facts([str(tmp_path / "fleet.yaml")], environ, said.append) is None
    assert said == []
