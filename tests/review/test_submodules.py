"""A fleet in a submodule: compared with what the repository around it records, not with what the change says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fleet_texts import fleet
from git_folder import GitFolder

from fleetctl.errors import RevisionError
from fleetctl.review.branch import commit_on_branch, push_to_branch
from fleetctl.review.inputs import files_of_sides, load_base, read_sides
from fleetctl.review.revisions import MissingRevision, repository_of
from fleetctl.workflow.planning import git_facts

FILE = "fleets/prod.yaml"


class World:
    """A repository `top`, and one with a fleet, `parts`, which the first has at `fleets`, as submodules are cloned."""

    def __init__(self, tmp_path: Path, environ: dict[str, str]) -> None:
        self.tmp_path = tmp_path
        self.environ = {**environ, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow",
                        "GIT_CONFIG_VALUE_0": "always"}
        self.parts, self.top = self.made("parts"), self.made("top")
        self.parts.commit({"prod.yaml": fleet("org/a", replicas=3)})
        self.top.commit({"README.md": "x"})

    def made(self, name: str) -> GitFolder:
        folder = self.tmp_path / name
        folder.mkdir()
        repository = GitFolder(folder, self.environ)
        repository.git("init", "--quiet", "--initial-branch", "main")
        return repository

    def add(self, around: GitFolder, source: GitFolder, path: str) -> GitFolder:
        around.git("submodule", "--quiet", "add", str(source.folder), path)
        around.commit({})
        return GitFolder(around.folder / path, self.environ)

    @property
    def inner(self) -> GitFolder:
        return GitFolder(self.top.folder / "fleets", self.environ)


@pytest.fixture
def world(tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path, environ)
    monkeypatch.chdir(made.top.folder)
    return made


def replicas(world: World, base: str, head: str | None = None, file: str = FILE) -> list[int | None]:
    sides = read_sides(*files_of_sides(base, head, [file], world.environ), bytes)
    return [side.fleet.models[0].replicas if side.fleet else None for side in sides]


def test_a_new_commit_of_a_submodule_is_compared_with_the_recorded_one(world: World) -> None:
    world.add(world.top, world.parts, "fleets")
    world.inner.commit({"prod.yaml": fleet("org/a", replicas=12)})
    world.top.commit({})
    assert replicas(world, "HEAD~1", "HEAD") == replicas(world, "HEAD~1") == [3, 12]
    assert replicas(world, "HEAD~1...HEAD") == [3, 12]
    base = load_base([FILE], "HEAD~1", world.environ)
    assert base.fleet is not None
    assert base.fleet.models[0].replicas == 3
    assert base.revision.commit == world.inner.git("rev-parse", "HEAD~1")


def test_revisions_in_a_submodule_are_those_of_the_repository_around_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own branches come from wherever the change says."""
    world.add(world.top, world.parts, "fleets")
    world.inner.git("checkout", "--quiet", "-b", "only-here")
    world.inner.commit({"prod.yaml": fleet("org/a", replicas=12)})
    world.inner.git("update-ref", "refs/remotes/origin/base", "HEAD")
    world.top.git("branch", "origin/base")
    monkeypatch.chdir(world.inner.folder)
    assert replicas(world, "origin/base", file="prod.yaml") == [3, 12]
    with pytest.raises(MissingRevision, match="git has no revision 'only-here'"):
        replicas(world, "only-here", file="prod.yaml")


def test_a_folder_that_became_a_submodule_has_no_base(world: World) -> None:
    world.top.commit({FILE: fleet("org/a", replicas=1)})
    world.top.git("checkout", "--quiet", "-b", "change")
    world.top.git("rm", "--quiet", "-r", "fleets")
    world.parts.commit({"prod.yaml": fleet("org/a", replicas=12)})
    world.add(world.top, world.parts, "fleets")
    world.inner.git("update-ref", "refs/heads/main", "HEAD")
    for compared in (("main", None), ("main...", None), ("main", "HEAD")):
        with pytest.raises(RevisionError, match="has no submodule at fleets, so it has no base") as caught:
            replicas(world, *compared)
        assert "by hand" in str(caught.value.hint)
    with pytest.raises(RevisionError, match="main has no submodule at fleets"):
        load_base([FILE], "main", world.environ)


def test_a_submodule_with_another_url_has_no_base(world: World, tmp_path: Path) -> None:
    world.add(world.top, world.parts, "fleets")
    shutil.copytree(world.parts.folder, tmp_path / "evil")
    world.top.git("config", "--file", ".gitmodules", "submodule.fleets.url", str(tmp_path / "evil"))
    world.top.commit({})
    with pytest.raises(RevisionError, match=r"has another URL than in HEAD~1: .*/evil, not .*/parts"):
        replicas(world, "HEAD~1")
    assert replicas(world, "HEAD") == [3, 3]


def test_a_submodule_at_another_path_has_no_base(world: World) -> None:
    world.add(world.top, world.parts, "old")
    world.top.git("mv", "old", "fleets")
    world.top.commit({})
    with pytest.raises(RevisionError, match="HEAD~1 has no submodule at fleets"):
        replicas(world, "HEAD~1")


ONE, TWO = ('[submodule "a"]\n\tpath = fleets\n', '[submodule "b"]\n\tpath = fleets\n\turl = y\n')


@pytest.mark.parametrize("listed", ["", ONE, f"{ONE}\turl = x\n{TWO}", f"{TWO}\turl = x\n"])
def test_a_submodule_without_one_url_has_no_base(world: World, listed: str) -> None:
    world.add(world.top, world.parts, "fleets")
    world.top.commit({".gitmodules": listed})
    world.top.commit({".gitmodules": listed + "\n"})
    with pytest.raises(RevisionError, match="HEAD~1 has no submodule at fleets"):
        replicas(world, "HEAD~1")


def test_a_recorded_commit_that_was_not_fetched_names_the_command(world: World) -> None:
    world.add(world.top, world.parts, "fleets")
    gone = "1" * 40
    world.top.git("update-index", "--cacheinfo", f"160000,{gone},fleets")
    world.top.git("commit", "--quiet", "-m", "elsewhere")
    world.inner.git("checkout", "--quiet", "--detach", "HEAD")
    world.top.commit({})
    with pytest.raises(MissingRevision, match="has the submodule fleets at 1111111111") as caught:
        replicas(world, "HEAD~1")
    assert str(caught.value.hint).startswith(f"fetch it: git -C fleets fetch origin {gone}")


def test_a_submodule_that_head_lost_has_no_base(world: World) -> None:
    world.add(world.top, world.parts, "fleets")
    world.top.git("rm", "--quiet", "--cached", "fleets")
    world.top.git("commit", "--quiet", "-m", "gone")
    with pytest.raises(RevisionError, match="HEAD does not have the submodule fleets"):
        replicas(world, "HEAD~1")


def test_every_level_of_nested_submodules_counts(world: World) -> None:
    middle = world.made("middle")
    middle.commit({"x": "x"})
    world.add(middle, world.parts, "parts")
    world.add(world.top, middle, "mid")
    world.top.git("submodule", "--quiet", "update", "--init", "--recursive")
    file, inside = "mid/parts/prod.yaml", GitFolder(world.top.folder / "mid/parts", world.environ)
    inside.commit({"prod.yaml": fleet("org/a", replicas=12)})
    GitFolder(world.top.folder / "mid", world.environ).commit({})
    world.top.commit({})
    assert replicas(world, "HEAD~1", file=file) == [3, 12]
    assert repository_of(file, world.environ).outermost.top == str(world.top.folder)
    with pytest.raises(RevisionError, match="HEAD~2 has no submodule at mid"):
        replicas(world, "HEAD~2", file=file)


def test_a_submodule_of_a_linked_worktree_is_one_too(world: World, tmp_path: Path) -> None:
    world.add(world.top, world.parts, "fleets")
    world.top.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    linked = GitFolder(tmp_path / "linked", world.environ)
    linked.git("submodule", "--quiet", "update", "--init")
    GitFolder(linked.folder / "fleets", world.environ).commit({"prod.yaml": fleet("org/a", replicas=12)})
    linked.commit({})
    assert replicas(world, "HEAD~1", file=str(linked.folder / FILE)) == [3, 12]


def test_a_fleet_beside_a_submodule_is_read_as_before(world: World) -> None:
    world.add(world.top, world.parts, "parts")
    world.top.commit({FILE: fleet("org/a", replicas=4)})
    assert replicas(world, "HEAD") == [4, 4]


def test_a_proposal_is_not_pushed_from_a_submodule(world: World) -> None:
    """The change that is checked out may have chosen its server."""
    world.add(world.top, world.parts, "fleets")
    file = world.inner.folder / "prod.yaml"
    changes = {file: (file.read_text(), fleet("org/a", replicas=5))}
    with pytest.raises(RevisionError, match="fleets is a submodule of") as caught:
        push_to_branch("origin", "more", None, changes, "more", world.environ)
    assert "from a clone" in str(caught.value.hint)
    commit = commit_on_branch("more", changes, "more", world.environ)
    assert world.inner.git("rev-parse", "more") == commit


@pytest.mark.parametrize("named", ["fleets", "fleets/", FILE, "deploy/fleets/prod.yaml", "deploy/fleets"])
def test_a_link_into_a_submodule_does_not_choose_another_base(world: World, named: str) -> None:
    """The submodule is the same in both: compared within it, one replica more or less would be no change."""
    world.parts.commit({FILE: fleet("org/a", replicas=12)})
    world.add(world.top, world.parts, "vendor")
    world.top.commit({"fleets/prod.yaml": fleet("org/a", replicas=1), "deploy/x": "x"})
    world.top.git("rm", "--quiet", "-r", "fleets", "deploy")
    (world.top.folder / "fleets").symlink_to("deploy/fleets")
    (world.top.folder / "deploy").symlink_to("vendor")
    world.top.commit({})
    for compared in (("HEAD~1", None), ("HEAD~1...", None), ("HEAD~1", "HEAD")):
        with pytest.raises(RevisionError, match="is a link that leads out of the git repository") as at:
            replicas(world, *compared, file=named)
        assert at.value.hint == f"name the folder that it leads to: -f {world.top.folder}/vendor/fleets"
    assert git_facts([named], world.environ) is None
    assert replicas(world, "HEAD~1", file="vendor/fleets") == [12, 12]


def test_a_link_of_the_user_to_a_checkout_is_followed(world: World, tmp_path: Path) -> None:
    world.top.commit({FILE: fleet("org/a", replicas=1)})
    (tmp_path / "mine").symlink_to(world.top.folder)
    (world.top.folder / "same").symlink_to("fleets")
    for named in (tmp_path / "mine" / FILE, world.top.folder / "same/prod.yaml"):
        assert repository_of(str(named), world.environ).top == str(world.top.folder)
