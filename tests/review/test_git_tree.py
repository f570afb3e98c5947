"""A git commit as a tree of files: it reads like the disk at that commit, links included."""

from __future__ import annotations

from pathlib import Path

import pytest
from fleet_texts import fleet
from git_folder import GitFolder

from fleetctl.fleetfile.file_tree import DISK
from fleetctl.fleetfile.load import inspect_fleet, load_fleet
from fleetctl.review.git_command import Git
from fleetctl.review.git_discovery import own_git_dir
from fleetctl.review.revisions import GitTree, Repository, repository_of

ODD_NAMES = ["with space.yaml", "größe.yaml", "日本.yaml", "semi;colon.yaml", "-dash.yaml", "quote'\".yaml",
             "new\nline.yaml", ":(glob)*.yaml", "star*.yaml"]


def tree_at(repository: GitFolder, name: str = "HEAD", path: str = ".") -> GitTree:
    found = repository_of(path, repository.environ)
    return GitTree(found, found.commit(name))


def test_a_commit_reads_like_the_disk_at_that_time(repository: GitFolder) -> None:
    repository.commit({f"odd/{name}": fleet(f"org/{number}") for number, name in enumerate(ODD_NAMES)} | {
        "odd/deeper/x.yaml": "x", "top.yaml": "top"})
    tree = tree_at(repository)
    for path in ["odd", "odd/", "./odd", "odd/deeper/..", str(repository.folder / "odd")]:
        assert tree.names(path) == DISK.names(path) == sorted(ODD_NAMES)
    for path in ["top.yaml", "odd/x.yaml", "odd/deeper/x.yaml", "odd", "odd/deeper", ".", "absent", "top.yaml/x",
                 *(f"odd/{name}" for name in ODD_NAMES)]:
        assert (tree.is_folder(path), tree.is_file(path)) == (DISK.is_folder(path), DISK.is_file(path)), path
        if DISK.is_file(path):
            assert tree.read(path, 1 << 20) == DISK.read(path, 1 << 20)


def test_a_folder_of_a_commit_loads_as_from_the_disk(repository: GitFolder) -> None:
    repository.commit({f"fleets/{name}": fleet(f"org/{number}") for number, name in enumerate(ODD_NAMES)})
    in_git, on_disk = load_fleet(["fleets"], tree=tree_at(repository)), load_fleet(["fleets"])
    assert in_git == on_disk
    assert len(in_git.models) == len(ODD_NAMES) + 1


def test_a_commit_does_not_depend_on_the_files_on_disk(repository: GitFolder) -> None:
    before = (repository.folder / "fleets/prod.yaml").read_bytes()
    (repository.folder / "fleets/prod.yaml").write_text("changed")
    (repository.folder / "fleets/new.yaml").write_text("new")
    tree = tree_at(repository)
    assert tree.read("fleets/prod.yaml", 1 << 20) == before
    assert tree.names("fleets") == ["prod.yaml"]
    assert not tree.is_file("fleets/new.yaml")


def test_a_file_is_read_up_to_the_limit(repository: GitFolder) -> None:
    assert tree_at(repository).read("fleets/prod.yaml", 3) == b"api"


def test_paths_are_relative_to_the_current_folder(
    repository: GitFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"deep/down/here.yaml": "here"})
    monkeypatch.chdir(repository.folder / "deep" / "down")
    tree = tree_at(repository)
    assert tree.read("here.yaml", 9) == b"here"
    assert tree.is_file("../../fleets/prod.yaml")
    assert tree.identity("../down/here.yaml") == tree.identity("here.yaml") == "deep/down/here.yaml"


def test_a_folder_that_a_change_replaced_by_a_link_is_still_the_one_of_the_base(
    repository: GitFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (repository.folder / "fleets/prod.yaml").read_bytes()
    (repository.folder / "fleets").rename(repository.folder / "moved")
    (repository.folder / "fleets").symlink_to("moved")
    repository.commit({"moved/prod.yaml": "changed"})
    monkeypatch.chdir(repository.folder / "fleets")
    repository.environ["PWD"] = str(repository.folder / "fleets")  # as every shell does
    assert tree_at(repository, "HEAD~1").read("prod.yaml", 1 << 20) == before
    assert tree_at(repository).read("prod.yaml", 1 << 20) == b"changed"
    repository.environ["PWD"] = str(repository.folder)  # of another process
    assert not tree_at(repository, "HEAD~1").is_file("prod.yaml")


def test_a_base_is_read_from_the_same_commit(repository: GitFolder) -> None:
    overlay = ("apiVersion: fleetctl/v1\nkind: Fleet\nextends: ../base.yaml\nmetadata: {name: lab}\n"
               "spec:\n  models:\n  - {key: org/a, replicas: 9}\n")
    repository.commit({"base.yaml": fleet("org/a"), "fleets/prod.yaml": overlay})
    (repository.folder / "base.yaml").write_text("broken: [")
    fleet_then = load_fleet(["fleets/prod.yaml"], tree=tree_at(repository))
    assert [(model.key, model.replicas) for model in fleet_then.models] == [("org/a", 9)]
    assert inspect_fleet(["fleets/prod.yaml"]).errors != ()


def test_links_are_followed_inside_the_tree_and_never_out_of_it(repository: GitFolder, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("secret")
    links = {"link.yaml": "fleets/prod.yaml", "folder": "fleets", "fleets/twice.yaml": "../link.yaml",
             "out.yaml": "../secret.yaml", "absolute.yaml": str(tmp_path / "secret.yaml"), "loop": "loop",
             "dangling.yaml": "nowhere.yaml", "out": ".."}
    for name, target in links.items():
        (repository.folder / name).symlink_to(target)
    repository.commit({})
    tree = tree_at(repository)
    inside = tree.read("fleets/prod.yaml", 1 << 20)
    for path in ["link.yaml", "folder/prod.yaml", "fleets/twice.yaml", "folder/twice.yaml"]:
        assert tree.read(path, 1 << 20) == inside
        assert tree.identity(path) == "fleets/prod.yaml"
    assert tree.is_folder("folder")
    assert list(tree.names("folder")) == ["prod.yaml", "twice.yaml"]
    for path in ["loop", "dangling.yaml", "out/secret.yaml"]:
        assert not tree.is_folder(path)
    for path in ["dangling.yaml", "loop"]:
        assert not tree.is_file(path)
    for path in ["out.yaml", "absolute.yaml"]:
        assert tree.is_file(path)  # not silently absent: reading it says why
        with pytest.raises(OSError, match="link out of the repository"):
            tree.read(path, 9)


def test_a_link_out_of_the_repository_is_a_problem_of_the_fleet(repository: GitFolder) -> None:
    (repository.folder / "fleets" / "host.yaml").symlink_to("/etc/hostname")
    repository.commit({})
    [problem] = inspect_fleet(["fleets"], tree=tree_at(repository)).errors
    assert (problem.code, problem.file) == ("FL001", "fleets/host.yaml")
    assert "a link out of the repository, to /etc/hostname" in problem.message


def test_a_commit_has_no_files_outside_the_repository(repository: GitFolder, tmp_path: Path) -> None:
    tree = tree_at(repository)
    for path in ["..", "../x.yaml", str(tmp_path / "x.yaml"), "/", "a\0b"]:
        assert not tree.in_checkout(path, "")
        assert not tree.is_file(path)
        assert not tree.is_folder(path)
        assert tree.identity(path) == path
        with pytest.raises(FileNotFoundError):
            tree.read(path, 9)
    assert tree.in_checkout("not/there/yet.yaml", "")


def test_a_folder_reached_through_a_link_is_the_same_repository(
    repository: GitFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alias").symlink_to(repository.folder)
    absolute = str(tmp_path / "alias" / "fleets" / "prod.yaml")
    assert tree_at(repository, path=absolute).is_file(absolute)
    monkeypatch.chdir(tmp_path / "alias" / "fleets")
    assert tree_at(repository).is_file("prod.yaml")


def test_a_bare_clone_of_our_own_is_read_by_paths_from_its_top(
    repository: GitFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.git("clone", "--quiet", "--bare", str(repository.folder), str(tmp_path / "bare.git"))
    monkeypatch.chdir(tmp_path / "bare.git")
    found = Repository(Git(own_git_dir(tmp_path / "bare.git", repository.environ), repository.environ))
    tree = GitTree(found, found.commit("main"))
    assert tree.names("fleets") == ["prod.yaml"]
    assert not tree.in_checkout("../repo/fleets/prod.yaml", "")


def test_a_worktree_reads_its_own_head(repository: GitFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "tree"))
    side = GitFolder(tmp_path / "tree", repository.environ)
    side.commit({"fleets/prod.yaml": "side"})
    monkeypatch.chdir(side.folder)
    assert tree_at(side).read("fleets/prod.yaml", 9) == b"side"
    assert tree_at(side, "main").read("fleets/prod.yaml", 3) == b"api"


def test_a_submodule_is_not_read_as_a_file(repository: GitFolder) -> None:
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    repository.git("commit", "--quiet", "--message", "module")
    tree = tree_at(repository)
    assert not tree.is_file("module")
    assert not tree.is_folder("module")
    assert tree.is_file("module/fleet.yaml")  # not silently absent: reading it says why
    with pytest.raises(OSError, match="it is in the submodule module"):
        tree.read("module/fleet.yaml", 9)


def test_a_base_in_a_submodule_is_reported_as_such(repository: GitFolder) -> None:
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},parts")
    extends = "kind: Fleet\nextends: ../parts/base.yaml\n"
    (repository.folder / "fleets/sub.yaml").write_text(fleet("org/a").replace("kind: Fleet\n", extends))
    repository.git("add", "fleets/sub.yaml")
    repository.git("commit", "--quiet", "--message", "a submodule")
    (problem,) = inspect_fleet(["fleets/sub.yaml"], tree=tree_at(repository)).errors
    assert (problem.code, problem.file) == ("FL018", "fleets/sub.yaml")
    assert "it is in the submodule parts" in problem.message
