"""A repository whose configuration would run programs: comparing its revisions runs and writes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fleet_texts import fleet
from git_folder import GitFolder

from fleetctl.errors import RevisionError
from fleetctl.review.branch import commit_on_branch
from fleetctl.review.compare import compare
from fleetctl.review.inputs import files_of_sides, read_sides
from fleetctl.workflow.planning import git_facts


def no_stdin() -> bytes:
    raise AssertionError("standard input must not be read")


@pytest.fixture
def trap(repository: GitFolder, tmp_path: Path) -> Path:
    """Configure every program that git can run; return the file that they would write."""
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
                "uploadpack.packObjectsHook", "gpg.program", "pager.ls-tree", "pager.rev-parse", "pager.cat-file",
                "core.gitProxy", "core.alternateRefsCommand", "credential.helper", "gpg.ssh.program", "hook.t.command",
                "gpg.ssh.defaultKeyCommand", "sequence.editor", "interactive.diffFilter", "remote.origin.uploadpack",
                "remote.origin.vcs", "credential.https://a.example.helper", "merge.t.driver", "trailer.t.command"):
        repository.git("config", key, str(program))
    repository.git("config", "core.hooksPath", str(hooks))
    for key, value in {"log.showSignature": "true", "status.submoduleSummary": "true", "remote.origin.promisor": "true",
                       "hook.t.event": "reference-transaction"}.items():
        repository.git("config", key, value)
    for alias in ("ls-tree", "rev-parse", "cat-file", "merge-base", "config", "status", "rev-list", "diff-index"):
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
        places = files_of_sides(*arguments, ["fleets"], repository.environ)
        assert compare(*read_sides(*places, no_stdin)).summary["additive"] == 1
    assert files_below(repository.folder) == before
    assert not trap.exists()


def test_a_renamed_file_is_found_without_running_programs(repository: GitFolder, trap: Path) -> None:
    (repository.folder / "lab.yaml").write_text(fleet("org/a", replicas=5))
    blob = repository.git("hash-object", "-w", "--no-filters", "lab.yaml")
    repository.git("update-index", "--add", "--cacheinfo", f"100644,{blob},lab.yaml")
    repository.git("update-index", "--force-remove", "fleets/prod.yaml")
    commit = repository.git("commit-tree", repository.git("write-tree"), "-p", "HEAD", "-m", "renamed")
    trap.unlink(missing_ok=True)
    for head in (None, commit):
        places = files_of_sides("HEAD", head, ["lab.yaml"], repository.environ)
        assert compare(*read_sides(*places, no_stdin)).summary["additive"] == 1
    assert not trap.exists()


@pytest.mark.parametrize("required", ["true", "false"])
def test_reading_the_git_facts_of_a_plan_runs_no_program(repository: GitFolder, trap: Path, required: str) -> None:
    repository.git("config", "filter.t.required", required)
    # rewritten, so that git must read it to detect changes
    file = repository.folder / "fleets/prod.yaml"
    file.write_text(file.read_text())
    facts = git_facts(["fleets/prod.yaml"], repository.environ)
    assert facts is not None
    assert not facts.dirty
    assert not trap.exists()


@pytest.mark.parametrize("name", ["a=b", "a.b", "A"])
def test_a_filter_of_any_name_is_not_run(repository: GitFolder, trap: Path, name: str) -> None:
    (repository.folder / ".git/included").write_text(f'[filter "{name}"]\n\tclean = {trap.parent}/trap.sh\n')
    repository.git("config", "include.path", "included")
    (repository.folder / ".git/info/attributes").write_text(f"fleets/* filter={name}\n")
    os.utime(repository.folder / "fleets/prod.yaml", (1, 1))
    git_facts(["fleets/prod.yaml"], repository.environ)
    assert not trap.exists()


def test_a_program_that_a_tracked_file_names_is_not_run(repository: GitFolder, trap: Path) -> None:
    """Some checkouts include a committed file into their configuration."""
    program = trap.parent / "trap.sh"
    repository.git("config", "--remove-section", "filter.t")
    repository.git("config", "include.path", "../settings")
    settings = f'[filter "s"]\n\tclean = {program}\n\trequired = true\n[core]\n\tfsmonitor = {program}\n'
    repository.commit({"settings": settings, ".gitattributes": "* filter=s\n"})
    os.utime(repository.folder / "fleets/prod.yaml", (1, 1))
    trap.unlink(missing_ok=True)
    git_facts(["fleets/prod.yaml"], repository.environ)
    compare(*read_sides(*files_of_sides("HEAD~1", None, ["fleets"], repository.environ), no_stdin))
    assert not trap.exists()


def test_a_program_whose_key_git_cannot_override_is_an_error(repository: GitFolder, trap: Path) -> None:
    (repository.folder / ".git/included").write_text(f'[filter "a=b"]\n\tclean = {trap.parent}/trap.sh\n')
    repository.git("config", "include.path", "included")
    with pytest.raises(RevisionError, match=r"names a program under 'filter\.a=b\.clean'"):
        files_of_sides("HEAD~1", None, ["fleets"], repository.environ)
    assert not trap.exists()


def test_local_commits_are_made_without_running_programs(repository: GitFolder, trap: Path) -> None:
    file = repository.folder / "fleets/prod.yaml"
    commit = commit_on_branch("more", {file: (file.read_text(), fleet("org/a", replicas=9))}, "more",
                              repository.environ)
    assert not trap.exists()
    assert "replicas: 9" in repository.git("cat-file", "blob", f"{commit}:fleets/prod.yaml")
    assert repository.git("rev-parse", f"{commit}^", "more") == repository.git("rev-parse", "HEAD", commit)


def test_a_filter_from_the_users_own_configuration_is_run(repository: GitFolder, tmp_path: Path) -> None:
    """For example Git LFS, configured for the user and not by a repository; change detection needs it."""
    (tmp_path / "home").mkdir()
    repository.git("config", "--global", "filter.upper.clean", "tr a-z A-Z")
    repository.commit({".gitattributes": "*.yaml filter=upper\n", "fleets/prod.yaml": "shout"})
    assert repository.git("cat-file", "blob", "HEAD:fleets/prod.yaml") == "SHOUT"
    os.utime(repository.folder / "fleets/prod.yaml", (1, 1))
    facts = git_facts(["fleets/prod.yaml"], repository.environ)
    assert facts is not None
    assert not facts.dirty


def test_the_trap_runs_a_program_with_plain_git(repository: GitFolder, trap: Path) -> None:
    repository.git("--paginate", "diff", "HEAD~1", "HEAD")
    assert trap.exists()
