"""Which repository a file belongs to: the nearest `.git` of our own walk, and only if the user owns or trusts it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from fleet_texts import fleet
from git_folder import GitFolder
from hostile_git import embed

from fleetctl.errors import RevisionError
from fleetctl.review.git_discovery import NoRepository, find_git_dir, own_git_dir
from fleetctl.review.inputs import load_base
from fleetctl.review.revisions import repository_of
from fleetctl.workflow.planning import git_facts


@pytest.mark.parametrize("level", ["fleets", "fleets/deep", "fleets/deep/er"])
def test_a_committed_bare_repository_is_never_the_repository(repository: GitFolder, level: str) -> None:
    file = f"{level}/prod.yaml"
    base = repository.commit({file: fleet("org/a", replicas=3)})
    (repository.folder / file).write_text(fleet("org/a", replicas=12))
    for folder in ("fleets", "fleets/deep", "fleets/deep/er"):
        if (repository.folder / folder).is_dir():
            embed(repository, folder, base, {file: fleet("org/a", replicas=12).encode()})
    repository.commit({})
    before = load_base((file,), base, repository.environ)
    assert before.fleet is not None
    assert before.fleet.models[0].replicas == 3
    assert find_git_dir(file, repository.environ).top == str(repository.folder)
    facts = git_facts([file], repository.environ)
    assert facts is not None
    assert facts.commit == repository.git("rev-parse", "HEAD")


def test_a_bare_repository_as_the_current_folder_is_not_used_either(
    repository: GitFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = repository.git("rev-parse", "HEAD")
    embed(repository, "fleets", base, {})
    monkeypatch.chdir(repository.folder / "fleets")
    assert find_git_dir(".", repository.environ).top == str(repository.folder)
    assert find_git_dir("prod.yaml", repository.environ).top == str(repository.folder)


def test_a_bare_repository_outside_of_any_checkout_is_named(repository: GitFolder, tmp_path: Path) -> None:
    repository.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    with pytest.raises(NoRepository, match="not a git repository") as caught:
        find_git_dir(str(tmp_path / "bare.git"), repository.environ)
    assert f"{tmp_path}/bare.git looks like a bare repository" in str(caught.value.hint)


@pytest.mark.parametrize("make", [
    lambda git: git.mkdir(), lambda git: git.write_text("gitdir: nowhere\n"), lambda git: git.write_text("\0"),
    lambda git: git.write_text("gitdir: \0\n"), lambda git: git.write_text("x" * 100_000), os.mkfifo,
    lambda git: git.symlink_to(".git"), lambda git: git.symlink_to("nowhere"), lambda git: git.symlink_to("."),
    lambda git: git.write_text(""),
], ids=["empty folder", "missing folder", "no text", "NUL", "long", "pipe", "loop", "dangling", "its own folder",
        "empty file"])
def test_an_entry_that_leads_nowhere_is_not_passed_over(repository: GitFolder, make: object) -> None:
    """git would go on upward past some of them."""
    assert callable(make)
    make(repository.folder / "fleets/.git")
    with pytest.raises(NoRepository, match=r"fleets/\.git is neither a git folder nor a link to one"):
        find_git_dir("fleets/prod.yaml", repository.environ)
    assert git_facts(["fleets/prod.yaml"], repository.environ) is None


def test_a_git_folder_inside_a_tracked_folder_is_refused(repository: GitFolder) -> None:
    """git refuses to commit one, but an archive or an artifact may bring it."""
    inner = GitFolder(repository.folder / "fleets", repository.environ)
    inner.git("init", "--quiet", "--initial-branch", "main")
    inner.commit({})
    with pytest.raises(RevisionError, match=r"fleets has a \.git of its own, but the repository .* tracks that folder"):
        repository_of("fleets/prod.yaml", repository.environ)


@pytest.mark.parametrize("target", ["../evil.git", "evil.git"])
def test_a_gitfile_or_link_to_committed_files_is_refused(repository: GitFolder, target: str) -> None:
    embed(repository, posix("fleets", target), repository.git("rev-parse", "HEAD"), {})
    repository.commit({})
    for make in (lambda git: git.write_text(f"gitdir: {target}\n"), lambda git: git.symlink_to(target)):
        entry = repository.folder / "fleets/.git"
        make(entry)
        with pytest.raises(RevisionError, match="tracks that folder"):
            repository_of("fleets/prod.yaml", repository.environ)
        entry.unlink()


def posix(folder: str, path: str) -> str:
    return os.path.normpath(f"{folder}/{path}")


def test_an_independent_clone_in_an_untracked_folder_is_its_own_repository(repository: GitFolder) -> None:
    """For example all of them below a home folder that is a repository."""
    other = GitFolder(repository.folder / "clones/other", repository.environ)
    other.folder.mkdir(parents=True)
    other.git("init", "--quiet", "--initial-branch", "main")
    pushed = other.commit({"prod.yaml": fleet("org/b", replicas=2)})
    assert repository_of("clones/other/prod.yaml", repository.environ).commit("HEAD").id == pushed
    assert load_base(("clones/other/prod.yaml",), "main", repository.environ).fleet


def test_a_link_to_the_git_folder_is_followed(repository: GitFolder, tmp_path: Path) -> None:
    (repository.folder / ".git").rename(tmp_path / "elsewhere")
    (repository.folder / ".git").symlink_to(tmp_path / "elsewhere")
    assert find_git_dir("fleets", repository.environ).path == str(tmp_path / "elsewhere")
    assert repository_of("fleets", repository.environ).commit("HEAD").id == repository.git("rev-parse", "HEAD")


@pytest.mark.parametrize("inside", [True, False])
def test_a_linked_worktree_has_its_own_head_and_the_same_objects(
    repository: GitFolder, tmp_path: Path, inside: bool
) -> None:
    repository.git("config", "extensions.worktreeConfig", "true")
    repository.git("config", "core.repositoryFormatVersion", "1")
    folder = repository.folder / "linked" if inside else tmp_path / "linked"
    repository.git("worktree", "add", "--quiet", "-b", "side", str(folder))
    side = GitFolder(folder, repository.environ)
    side.git("config", "--worktree", "core.sparseCheckout", "false")
    pushed = side.commit({"fleets/prod.yaml": fleet("org/a", replicas=9)})
    found = repository_of(str(folder / "fleets/prod.yaml"), repository.environ)
    assert (found.top, found.commit("HEAD").id, found.commit("main").id) == (
        str(folder), pushed, repository.git("rev-parse", "main"))
    assert found.git.git_dir.common == str(repository.folder / ".git")


def test_the_configuration_does_not_move_the_working_tree(repository: GitFolder, tmp_path: Path) -> None:
    before = git_facts(["fleets/prod.yaml"], repository.environ)
    assert before is not None
    assert not before.dirty
    (repository.folder / "more").mkdir()
    for key, value in {"core.worktree": str(tmp_path), "core.bare": "true"}.items():
        repository.git("config", key, value)
        assert repository_of("fleets/prod.yaml", repository.environ).top == str(repository.folder)
        assert git_facts(["fleets/prod.yaml"], repository.environ) == before
        repository.git("config", "--unset", key)


def test_a_file_of_the_git_folder_does_not_move_its_objects(repository: GitFolder, tmp_path: Path) -> None:
    """`commondir` of a linked worktree, in a git folder that is none: the folder it names must be one, and be owned."""
    (repository.folder / ".git/commondir").write_text(f"{tmp_path}/nowhere\n")
    with pytest.raises(NoRepository, match="is neither a git folder"):
        find_git_dir("fleets", repository.environ)


def owned(repository: GitFolder, monkeypatch: pytest.MonkeyPatch, foreign: Path | None = None) -> str:
    """Make one path, or all, belong to another user; return the repository's top."""
    real = os.lstat

    def lstat(path: str | Path) -> os.stat_result:
        fields = list(real(path)[:10])
        fields[stat.ST_UID] += foreign in (None, Path(path))
        return os.stat_result(fields)

    monkeypatch.setattr(os, "lstat", lstat)
    return str(repository.folder)


@pytest.mark.parametrize("foreign", [".", ".git"])
def test_a_repository_of_another_user_is_refused_with_gits_command_to_trust_it(
    repository: GitFolder, monkeypatch: pytest.MonkeyPatch, foreign: str
) -> None:
    top = owned(repository, monkeypatch, repository.folder / foreign)
    with pytest.raises(RevisionError, match=r"dubious ownership: .* belongs to another user") as caught:
        repository_of("fleets/prod.yaml", repository.environ)
    assert caught.value.hint == f"if you trust it: git config --global --add safe.directory {top}"
    assert git_facts(["fleets/prod.yaml"], repository.environ) is None


def test_what_a_gitfile_leads_to_must_be_owned_too(
    repository: GitFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    for foreign in (tmp_path / "linked/.git", repository.folder / ".git/worktrees/linked", repository.folder / ".git"):
        with monkeypatch.context() as patch:
            owned(repository, patch, foreign)
            with pytest.raises(RevisionError, match="dubious ownership"):
                find_git_dir(str(tmp_path / "linked/fleets"), repository.environ)


@pytest.mark.parametrize(("values", "trusted"), [
    (["{top}"], True), (["*"], True), (["{parent}/*"], True), (["{top}/*"], False), (["{parent}"], False),
    (["{top}", ""], False), (["", "{top}"], True), (["{top}/"], True), (["repo"], False), ([], False)])
def test_safe_directory_of_the_user_trusts_a_repository(
    repository: GitFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[str], trusted: bool
) -> None:
    (tmp_path / "home").mkdir()
    for value in values:
        repository.git("config", "--global", "--add", "safe.directory",
                       value.format(top=repository.folder, parent=tmp_path))
    owned(repository, monkeypatch)
    if trusted:
        assert repository_of("fleets", repository.environ).commit("HEAD")
    else:
        with pytest.raises(RevisionError, match="dubious ownership"):
            repository_of("fleets", repository.environ)


def test_safe_directory_of_the_command_trusts_and_that_of_the_repository_does_not(
    repository: GitFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.git("config", "safe.directory", "*")
    owned(repository, monkeypatch)
    with pytest.raises(RevisionError, match="dubious ownership"):
        repository_of("fleets", repository.environ)
    command = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    assert repository_of("fleets", {**repository.environ, **command}).commit("HEAD")


def test_root_owns_what_belongs_to_the_user_of_sudo(repository: GitFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.lstat(repository.folder).st_uid + 1
    owned(repository, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(RevisionError, match="dubious ownership"):
        find_git_dir("fleets", {**repository.environ, "SUDO_UID": str(owner + 1)})
    assert find_git_dir("fleets", {**repository.environ, "SUDO_UID": str(owner)})
    monkeypatch.setattr(os, "geteuid", lambda: owner + 5)
    with pytest.raises(RevisionError, match="dubious ownership"):
        find_git_dir("fleets", {**repository.environ, "SUDO_UID": str(owner)})


def test_a_clone_of_our_own_made_by_another_user_is_refused(
    repository: GitFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.git("init", "--quiet", "--bare", str(tmp_path / "clone"))
    assert own_git_dir(tmp_path / "clone", repository.environ).top is None
    owned(repository, monkeypatch)
    with pytest.raises(RevisionError, match="dubious ownership"):
        own_git_dir(tmp_path / "clone", repository.environ)
