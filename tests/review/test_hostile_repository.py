"""A repository whose configuration would run programs: comparing its revisions runs none, and writes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fleet_texts import fleet
from git_folder import GitFolder

from fleetctl.cli.git import git_facts
from fleetctl.review.arguments import places_of
from fleetctl.review.compare import compare
from fleetctl.review.sides import read_sides


def no_stdin() -> bytes:
    raise AssertionError("nobody named standard input")


@pytest.fixture
def trap(repository: GitFolder, tmp_path: Path) -> Path:
    """Make the repository run a program wherever git lets it; returns the file that program would leave behind."""
    sprung = tmp_path / "sprung"
    program = tmp_path / "trap.sh"
    program.write_text(f"#!/bin/sh\necho \"$0 $@\" >> {sprung}\ncat 2>/dev/null\n")
    program.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("post-index-change", "post-checkout", "reference-transaction", "pre-auto-gc"):
        (hooks / hook).symlink_to(program)
    repository.commit({"fleets/prod.yaml": fleet("org/a", replicas=4), ".gitattributes": "* diff=t filter=t\n"})
    for key in ("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "diff.external",
                "diff.t.textconv", "diff.t.command", "filter.t.smudge", "filter.t.clean", "filter.t.process",
                "uploadpack.packObjectsHook", "gpg.program", "pager.ls-tree", "pager.rev-parse", "pager.cat-file"):
        repository.git("config", key, str(program))
    repository.git("config", "core.hooksPath", str(hooks))
    for alias in ("ls-tree", "rev-parse", "cat-file", "merge-base"):
        repository.git("config", f"alias.{alias}", f"!{program}")
    sprung.unlink(missing_ok=True)
    return sprung


def files_below(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_nothing_the_repository_configures_is_run_and_nothing_is_written(repository: GitFolder, trap: Path) -> None:
    (repository.folder / "fleets/prod.yaml").write_text(fleet("org/a", replicas=5))
    os.utime(repository.folder / "fleets/prod.yaml", (1, 1))
    before = files_below(repository.folder)
    for arguments in ((None, None), ("HEAD~1", None), ("HEAD~1", "HEAD"), ("HEAD~1...HEAD", None)):
        places = places_of(*arguments, ["fleets"], repository.environ)
        assert compare(*read_sides(*places, no_stdin)).summary["additive"] == 1
    assert files_below(repository.folder) == before
    assert not trap.exists()


def test_the_git_facts_of_a_plan_run_nothing_either(repository: GitFolder, trap: Path) -> None:
    # without a filter, which `git status` must ask whether the file is changed
    (repository.folder / ".gitattributes").write_text("* diff=t\n")
    facts = git_facts(["fleets/prod.yaml"], repository.environ)
    assert facts is not None
    assert not trap.exists()


def test_the_trap_works(repository: GitFolder, trap: Path) -> None:
    repository.git("--paginate", "diff", "HEAD~1", "HEAD")
    assert trap.exists()
