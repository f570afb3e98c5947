"""Names of revisions: resolved as by git, safe with hostile names, with hints to fetch missing ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_folder import GitFolder

from fleetctl.errors import RevisionError
from fleetctl.review.revisions import Repository, parse_range, repository_of


def found(repository: GitFolder) -> Repository:
    return repository_of(str(repository.folder), repository.environ)


def test_every_name_of_a_commit_is_resolved(repository: GitFolder) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.git("tag", "-a", "v1", "-m", "one")
    second = repository.commit({"x": "x"})
    for name, commit in {"HEAD": second, "main": second, "refs/heads/main": second, "@": second, "HEAD~1": first,
                         "HEAD^": first, "v1": first, first[:8]: first, ":/change": second}.items():
        assert found(repository).commit(name).id == commit, name


@pytest.mark.parametrize("name", ["--output=x", "-x", "--help", "", "nope", "main:fleets", "^main", "main main",
                                  "a\nb", "$(touch pwned)", "main;touch pwned", "`touch pwned`", "HEAD^{tree}"])
def test_a_name_that_is_not_a_commit_is_refused_and_not_run(repository: GitFolder, name: str) -> None:
    before = sorted(repository.folder.iterdir())
    with pytest.raises(RevisionError, match="git has no revision"):
        found(repository).commit(name)
    assert sorted(repository.folder.iterdir()) == before


@pytest.mark.parametrize("reference", ["tags/main", "tags/origin/main", "remotes/origin/main", "heads/origin/main"])
def test_a_name_of_two_references_is_refused(repository: GitFolder, reference: str) -> None:
    """git would take a tag for the branch of the same name, and a local branch for a remote one."""
    first = repository.git("rev-parse", "HEAD")
    repository.git("update-ref", "refs/remotes/origin/main", first)
    repository.git("config", "core.warnAmbiguousRefs", "false")
    second = repository.commit({"x": "x"})
    repository.git("update-ref", f"refs/{reference}", second)
    name = "main" if reference == "tags/main" else "origin/main"
    if reference == "remotes/origin/main":
        assert found(repository).commit(name).id == second
        return
    for revision in (name, f"{name}~1", f"{name}^{{commit}}"):
        with pytest.raises(RevisionError, match="is ambiguous here") as caught:
            found(repository).commit(revision)
        assert "refs/heads/NAME" in (caught.value.hint or "")
    assert found(repository).commit("refs/remotes/origin/main").id == first
    assert found(repository).commit("refs/heads/main").id == second


def test_a_branch_or_tag_named_like_head_or_a_commit_changes_and_blocks_nothing(repository: GitFolder) -> None:
    first = repository.git("rev-parse", "HEAD")
    second = repository.commit({"x": "x"})
    for name in ("HEAD", second):
        repository.git("update-ref", f"refs/tags/{name}", first)
        assert (found(repository).commit(name).id, found(repository).commit(f"{name}~1").id) == (second, first)


@pytest.mark.parametrize(("name", "ends"), [
    ("a..b", ("a", "..", "b")), ("a...b", ("a", "...", "b")), ("a...", ("a", "...", "HEAD")),
    ("..b", ("HEAD", "..", "b")), ("origin/main...HEAD~2", ("origin/main", "...", "HEAD~2")),
    ("main", None), ("../x.yaml", None), ("./a..b", None), ("/a..b", None), ("..", None), ("v1.2", None),
])
def test_ranges_are_split_into_two_revisions(name: str, ends: tuple[str, str, str] | None) -> None:
    assert parse_range(name) == ends


def test_a_misspelled_name_suggests_the_nearest(repository: GitFolder) -> None:
    with pytest.raises(RevisionError, match="git has no revision 'mian'") as caught:
        found(repository).commit("mian")
    assert str(caught.value.hint).startswith("did you mean main? If not, ")


def test_a_merge_base_is_the_last_common_commit(repository: GitFolder) -> None:
    parted = repository.git("rev-parse", "HEAD")
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit({"side": "x"})
    repository.git("checkout", "--quiet", "main")
    repository.commit({"main": "x"})
    base = found(repository).merge_base("main", "side")
    assert (base.name, base.id) == ("main...side", parted)


def test_branches_without_common_history_have_no_merge_base(repository: GitFolder) -> None:
    repository.git("checkout", "--quiet", "--orphan", "other")
    repository.commit({"x": "x"})
    with pytest.raises(RevisionError, match="no merge base") as caught:
        found(repository).merge_base("main", "other")
    assert "share no history" in str(caught.value.hint)


@pytest.fixture
def shallow(repository: GitFolder, tmp_path: Path) -> GitFolder:
    """A clone as in CI: one branch with one commit."""
    repository.git("checkout", "--quiet", "-b", "feature")
    repository.commit({"x": "x"})
    repository.git("clone", "--quiet", "--depth", "1", "--branch", "feature", f"file://{repository.folder}",
                   str(tmp_path / "shallow"))
    return GitFolder(tmp_path / "shallow", repository.environ)


def test_a_branch_missing_from_the_clone_names_the_command_to_fetch_it(shallow: GitFolder) -> None:
    for name in ("main", "origin/main"):
        with pytest.raises(RevisionError) as caught:
            found(shallow).commit(name)
        assert "git fetch origin main:refs/remotes/origin/main" in str(caught.value.hint)
    # and that command works
    shallow.git("fetch", "--quiet", "origin", "main:refs/remotes/origin/main")
    assert found(shallow).commit("origin/main").id


def test_a_branch_without_commits_is_named_as_the_cause(repository: GitFolder) -> None:
    repository.git("checkout", "--quiet", "--orphan", "fresh")
    for name in ("HEAD", "HEAD~1"):
        with pytest.raises(RevisionError) as caught:
            found(repository).commit(name)
        assert caught.value.hint == "this branch has no commit yet"


NO_BRANCHES = ["HEAD~9", "HEAD^2", "main~9", "origin/main^2", "main@{9}", "main:fleets", "abc1234", "@~9",
               "--upload-pack=touch x", "origin/--upload-pack=touch x", "-f", "..."]


@pytest.mark.parametrize("name", NO_BRANCHES)
def test_no_impossible_fetch_is_suggested(shallow: GitFolder, name: str) -> None:
    with pytest.raises(RevisionError) as caught:
        found(shallow).commit(name)
    assert "refs/remotes" not in str(caught.value.hint)
    assert "git fetch --unshallow" in str(caught.value.hint)
    shallow.git("fetch", "--quiet", "--unshallow", "origin", "+refs/heads/*:refs/remotes/origin/*")
    with pytest.raises(RevisionError) as caught:
        found(shallow).commit(name)
    assert str(caught.value.hint).endswith("see `git branch --all` and `git log`")


def test_a_shallow_clone_names_the_command_to_deepen_it(shallow: GitFolder) -> None:
    shallow.git("fetch", "--quiet", "--depth", "1", "origin", "main:refs/remotes/origin/main")
    with pytest.raises(RevisionError, match="no merge base") as caught:
        found(shallow).merge_base("origin/main", "HEAD")
    assert "git fetch --unshallow" in str(caught.value.hint)
    shallow.git("fetch", "--quiet", "--unshallow")
    assert found(shallow).merge_base("origin/main", "HEAD").id


def test_a_name_in_a_hint_cannot_run_anything_when_it_is_pasted(shallow: GitFolder) -> None:
    with pytest.raises(RevisionError) as caught:
        found(shallow).commit("$(touch pwned)")
    assert "'$(touch pwned):refs/remotes/origin/$(touch pwned)'" in str(caught.value.hint)


def test_a_partial_clone_fetches_nothing(repository: GitFolder, tmp_path: Path) -> None:
    from fleetctl.review.revisions import GitTree

    repository.git("config", "uploadpack.allowFilter", "true")
    repository.git("clone", "--quiet", "--no-checkout", "--filter=blob:none", f"file://{repository.folder}",
                   str(tmp_path / "partial"))
    partial = GitFolder(tmp_path / "partial", repository.environ)
    tree = GitTree(found(partial), found(partial).commit("HEAD"))
    path = str(partial.folder / "fleets" / "prod.yaml")
    assert tree.is_file(path)
    with pytest.raises(OSError, match="git does not have its content here"):
        tree.read(path, 9)


def test_outside_a_repository_the_error_names_a_way_without_git(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    with pytest.raises(RevisionError, match="not a git repository") as caught:
        repository_of(str(tmp_path), {**environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    assert "fleetctl diff OLD.yaml NEW.yaml" in str(caught.value.hint)


def test_a_repository_of_another_owner_names_gits_command_to_trust_it(repository: GitFolder) -> None:
    with pytest.raises(RevisionError, match="dubious ownership") as caught:
        repository_of(str(repository.folder / "fleets" / "prod.yaml"),
                      {**repository.environ, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"})
    assert f"git config --global --add safe.directory {repository.folder}" in str(caught.value.hint)
    assert "fleets" not in str(caught.value.hint)


def test_git_variables_of_a_hook_are_ignored(repository: GitFolder) -> None:
    hook = {**repository.environ, "GIT_DIR": ".git", "GIT_INDEX_FILE": ".git/index", "GIT_PREFIX": "",
            "GIT_WORK_TREE": "/nowhere", "GIT_COMMON_DIR": "/nowhere", "GIT_OBJECT_DIRECTORY": "/nowhere",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": "/nowhere", "GIT_NAMESPACE": "nowhere", "GIT_CONFIG": "/nowhere"}
    path = str(repository.folder / "fleets" / "prod.yaml")
    assert repository_of(path, hook).commit("HEAD").id == repository.git("rev-parse", "HEAD")
    assert repository_of(path, hook).top == str(repository.folder.resolve())


def test_missing_git_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(RevisionError, match="git is not installed"):
        repository_of(str(tmp_path), {"PATH": str(tmp_path)})


def test_the_repository_is_found_even_if_the_files_folder_is_gone(repository: GitFolder) -> None:
    path = str(repository.folder / "gone" / "deeper" / "fleet.yaml")
    assert repository_of(path, repository.environ).top == str(repository.folder.resolve())


def test_a_link_belongs_to_the_repository_of_its_own_folder(
    repository: GitFolder, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere.yaml").write_text("x")
    (repository.folder / "link.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    assert repository_of(str(repository.folder / "link.yaml"), repository.environ).top == str(
        repository.folder.resolve())
