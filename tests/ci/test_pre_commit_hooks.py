"""The hooks, run on staged files as pre-commit does: entry, args, then the file names if the hook takes them."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import git
from in_process import run_here
from pull_request import FLEET

pytestmark = pytest.mark.slow

HOOKS = {hook["id"]: hook for hook in yaml.safe_load(
    (Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text())}
UNFORMATTED = FLEET.replace("metadata: {name: lab}", "metadata:   {name: lab}")


@dataclass(frozen=True)
class HookRun:
    """The result of a hook. pre-commit fails it if its code is not 0 or if it changed a file."""

    code: int
    output: str
    changed: bool


def run_hook(folder: Path, name: str, args: list[str] | None = None) -> HookRun | None:
    """Run a hook on the staged files; None = no staged file matches, so it is skipped."""
    hook: dict[str, Any] = HOOKS[name]
    names = [file for file in git(folder, "diff", "--cached", "--name-only").splitlines()
             if re.search(hook["files"], file)]
    if not names:
        return None
    assert hook["language"] == "python"
    command = [*shlex.split(hook["entry"]), *(hook.get("args", []) if args is None else args),
               *(names if hook.get("pass_filenames", True) else [])]
    assert command[0] == "fleetctl", "the command that the package installs"
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}
    before = git(folder, "diff")
    done = run_here(*command[1:], env=environ, folder=folder)
    return HookRun(done.returncode, done.stdout + done.stderr, git(folder, "diff") != before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with an empty folder of fleets."""
    git(tmp_path, "init", "-q")
    (tmp_path / "fleets").mkdir()
    return tmp_path


def stage(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    git(folder, "add", name)


def test_a_sound_and_formatted_file_passes_both_hooks(folder: Path) -> None:
    stage(folder, "fleets/prod.yaml", UNFORMATTED)
    run_hook(folder, "fleetctl-fmt")
    git(folder, "add", ".")
    for name in HOOKS:
        done = run_hook(folder, name)
        assert done is not None
        assert (done.code, done.changed) == (0, False), done.output


def test_an_unformatted_file_is_formatted(folder: Path) -> None:
    stage(folder, "fleets/prod.yaml", UNFORMATTED)
    done = run_hook(folder, "fleetctl-fmt")
    assert done is not None
    assert (done.code, done.changed) == (0, True)


def test_a_broken_file_fails_with_the_position(folder: Path) -> None:
    stage(folder, "fleets/prod.yaml", FLEET.replace("replicas: 1", "replicas: many"))
    done = run_hook(folder, "fleetctl-validate")
    assert done is not None
    assert done.code == 1
    assert "fleets/prod.yaml:7:15" in done.output


def test_a_fleet_in_several_files_is_checked_as_a_whole(folder: Path) -> None:
    stage(folder, "fleets/a.yaml", FLEET)
    git(folder, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "a")
    stage(folder, "fleets/b.yaml", FLEET)
    done = run_hook(folder, "fleetctl-validate")
    assert done is not None
    assert done.code == 1
    assert "org/one" in done.output
    alone = run_hook(folder, "fleetctl-validate", ["--file", "fleets/b.yaml"])
    assert alone is not None
    assert alone.code == 0


def test_other_files_run_no_hook(folder: Path) -> None:
    stage(folder, "deploy/values.yaml", "a: 1\n")
    stage(folder, "fleets/README.md", "# Fleets\n")
    assert [run_hook(folder, name) for name in HOOKS] == [None, None]
