"""Objects of a repository: each is what its id says and no larger than allowed, or there is no answer."""

from __future__ import annotations

import dataclasses
import gc
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fleet_texts import fleet
from git_folder import GitFolder
from hostile_git import embed, forge, write_huge_object, write_object

from fleetctl.errors import RevisionError
from fleetctl.fleetfile.load import inspect_fleet
from fleetctl.review.git_command import Git
from fleetctl.review.git_discovery import own_git_dir
from fleetctl.review.git_objects import LargeObject, MissingObject, Objects
from fleetctl.review.inputs import files_of_sides, load_base, read_sides
from fleetctl.review.revisions import GitTree, repository_of
from fleetctl.workflow.planning import git_facts

PATH = "fleets/prod.yaml"


def objects_of(repository: GitFolder) -> Objects:
    return repository_of(".", repository.environ).objects


def replicas(repository: GitFolder, base: str = "HEAD", head: str | None = None) -> list[int | None]:
    """Return the replicas of the only model on both sides."""
    sides = read_sides(*files_of_sides(base, head, ["fleets"], repository.environ), bytes)
    return [side.fleet.models[0].replicas if side.fleet else None for side in sides]


def packed(repository: GitFolder) -> None:
    repository.git("gc", "--quiet", "--prune=now")
    assert not list((repository.folder / ".git/objects").glob("??/*"))


def forged_tree(repository: GitFolder, name: str) -> bytes:
    """Return a tree like `name` whose first entry leads to another, genuine file."""
    entry = repository.git("ls-tree", name).splitlines()[0].split()
    raw = subprocess.run(["git", "-C", str(repository.folder), "cat-file", "tree", name], env=repository.environ,
                         check=True, capture_output=True).stdout
    other = {"blob": repository.git("hash-object", "-w", "--stdin"), "tree": repository.git("mktree")}[entry[1]]
    return raw.replace(bytes.fromhex(entry[2]), bytes.fromhex(other))


@pytest.mark.parametrize("name", ["HEAD", "HEAD^{tree}", "HEAD:fleets", "HEAD:fleets/prod.yaml"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_forged_object_is_an_error_that_names_it(repository: GitFolder, name: str, is_packed: bool) -> None:
    (repository.folder / PATH).write_text(fleet("org/a", replicas=12))
    assert replicas(repository) == [3, 12]
    kind = repository.git("cat-file", "-t", name)
    if kind == "tree":
        content = forged_tree(repository, name)
    elif kind == "commit":
        content = repository.git("cat-file", "commit", name).replace("change", "another").encode()
    else:
        content = fleet("org/a", replicas=12).encode()
    if is_packed:  # what is packed is found first, so a loose one of the same id forges nothing
        packed(repository)
        forge(repository, name, content)
        assert replicas(repository) == [3, 12]
        return
    forged = forge(repository, name, content)
    for compared in (("HEAD", None), ("HEAD", "HEAD"), ("HEAD...HEAD", None)):
        with pytest.raises(RevisionError, match=f"git {kind} {forged} is forged or damaged"):
            replicas(repository, *compared)
    with pytest.raises(RevisionError, match=f"git {kind} {forged} is forged or damaged"):
        load_base([PATH], "HEAD", repository.environ)


def test_a_forged_object_in_a_pack_is_an_error(repository: GitFolder) -> None:
    """The index of a pack names the ids of its objects; git trusts it."""
    forged = repository.git("rev-parse", f"HEAD:{PATH}")
    packed(repository)
    other = write_object(repository.folder / ".git/objects", "blob", fleet("org/a", replicas=12).encode())
    repository.git("update-index", "--add", "--cacheinfo", f"100644,{other},other.yaml")
    repository.git("commit", "--quiet", "-m", "other")
    packed(repository)
    (index,) = (repository.folder / ".git/objects/pack").glob("*.idx")
    data = bytearray(index.read_bytes())
    # version 2: 8 bytes, 256 numbers, the sorted ids, their checksums, and their offsets
    count = int.from_bytes(data[8 + 255 * 4:8 + 256 * 4], "big")
    ids, offsets = 8 + 256 * 4, 8 + 256 * 4 + count * 24
    names = [data[ids + 20 * at:ids + 20 * at + 20].hex() for at in range(count)]
    one, two = (offsets + 4 * names.index(name) for name in (forged, other))
    data[one:one + 4], data[two:two + 4] = data[two:two + 4], data[one:one + 4]
    index.chmod(0o644)
    index.write_bytes(data)
    with pytest.raises(RevisionError, match=f"git blob {forged} is forged or damaged"):
        replicas(repository)


def test_a_forged_commit_on_the_way_to_a_merge_base_is_an_error(repository: GitFolder) -> None:
    old = repository.git("rev-parse", "HEAD")
    middle = repository.commit({PATH: fleet("org/a", replicas=4)})
    repository.git("checkout", "--quiet", "-b", "side")
    tip = repository.commit({PATH: fleet("org/a", replicas=12)})
    last = repository.commit({"x": "x"})
    assert replicas(repository, "main...") == [4, 12]
    text = repository.git("cat-file", "commit", tip)
    forge(repository, tip, text.replace(middle, old).encode() + b"\n")
    assert repository.git("merge-base", "main", "side") == old, "git believes it"
    for base in ("main...", "HEAD~2", f"{last}~2", "HEAD^^", "main...HEAD^"):
        with pytest.raises(RevisionError, match=f"git (commit|object) {tip} is forged"):
            replicas(repository, base)


def test_another_object_among_commits_is_named_by_its_kind(repository: GitFolder) -> None:
    ids = [repository.git("rev-parse", name) for name in ("HEAD", f"HEAD:{PATH}")]
    with pytest.raises(RevisionError, match="git has a blob where a commit should be"):
        objects_of(repository).check_commits(ids)


@pytest.mark.parametrize("lie", ["grafts", "replace", "commit-graph"])
def test_files_that_change_the_history_are_ignored(repository: GitFolder, lie: str) -> None:
    old = repository.git("rev-parse", "HEAD")
    repository.commit({PATH: fleet("org/a", replicas=4)})
    repository.git("checkout", "--quiet", "-b", "side")
    tip = repository.commit({PATH: fleet("org/a", replicas=12)})
    if lie == "grafts":
        (repository.folder / ".git/info/grafts").write_text(f"{tip} {old}\n")
    elif lie == "replace":
        repository.git("replace", "--graft", tip, old)
    else:
        repository.git("replace", "--graft", tip, old)
        repository.git("commit-graph", "write", "--reachable")
    assert replicas(repository, "main...") == [4, 12]
    assert replicas(repository, "HEAD~1") == [4, 12]


def test_objects_of_another_repository_are_read_and_checked(repository: GitFolder, tmp_path: Path) -> None:
    repository.git("clone", "--quiet", "--shared", ".", str(tmp_path / "shared"))
    shared = GitFolder(tmp_path / "shared", repository.environ)
    base = load_base([str(shared.folder / PATH)], "HEAD", shared.environ)
    assert base.fleet is not None
    assert base.fleet.models[0].replicas == 3
    forged = forge(repository, f"HEAD:{PATH}", fleet("org/a", replicas=12).encode())
    with pytest.raises(RevisionError, match=f"git blob {forged} is forged"):
        load_base([str(shared.folder / PATH)], "HEAD", shared.environ)


def test_committed_objects_named_by_a_file_of_the_repository_are_checked_too(repository: GitFolder) -> None:
    base = repository.git("rev-parse", "HEAD")
    embed(repository, "fleets", base, {PATH: fleet("org/a", replicas=12).encode()})
    (repository.folder / ".git/objects/info/alternates").write_text(f"{repository.folder}/fleets/objects\n")
    blob = repository.git("rev-parse", f"HEAD:{PATH}")
    (repository.folder / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(RevisionError, match=f"git blob {blob} is forged"):
        replicas(repository)


def test_a_repository_with_sha256_is_read_and_checked(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new").mkdir()
    repository = GitFolder(tmp_path / "new", environ)
    repository.git("init", "--quiet", "--initial-branch", "main", "--object-format=sha256")
    monkeypatch.chdir(repository.folder)
    first = repository.commit({PATH: fleet("org/a", replicas=3)})
    repository.git("tag", "-a", "v1", "-m", "one")
    repository.commit({PATH: fleet("org/a", replicas=4)})
    assert len(first) == 64
    assert replicas(repository, "HEAD~1") == replicas(repository, "v1") == [3, 4]
    forged = forge(repository, f"HEAD~1:{PATH}", fleet("org/a", replicas=12).encode())
    with pytest.raises(RevisionError, match=f"git blob {forged} is forged"):
        replicas(repository, "v1")


def test_a_forged_tag_is_an_error(repository: GitFolder) -> None:
    old = repository.git("rev-parse", "HEAD")
    new = repository.commit({PATH: fleet("org/a", replicas=4)})
    repository.git("tag", "-a", "v1", "-m", "one")
    forged = forge(repository, "refs/tags/v1", repository.git("cat-file", "tag", "v1").replace(new, old).encode())
    with pytest.raises(RevisionError, match=f"git tag {forged} is forged"):
        replicas(repository, "v1")


@pytest.fixture
def large(repository: GitFolder, request: pytest.FixtureRequest) -> GitFolder:
    """A repository whose newest commit brings one object of 1.5 GB."""
    objects, kind = repository.folder / ".git/objects", request.param
    base = repository.git("rev-parse", "HEAD")
    tree = repository.git("rev-parse", "HEAD^{tree}")
    if kind == "commit":
        person = "t <t@example.com> 1 +0000"
        start = f"tree {tree}\nparent {base}\nauthor {person}\ncommitter {person}\n\n".encode()
        commit = write_huge_object(objects, "commit", start)
    else:
        mode = {"blob": "100644", "link": "120000", "tree": "040000"}[kind]
        start = b"100644 one\0" + b"1" * 20 if kind == "tree" else b""
        big = write_huge_object(objects, "tree" if kind == "tree" else "blob", start)
        files = repository.git("rev-parse", f"HEAD:{PATH}")
        rows = f"{mode} {'tree' if kind == 'tree' else 'blob'} {big}\tbig.yaml\n100644 blob {files}\tprod.yaml\n"
        folder = made(repository, rows)
        root = made(repository, f"040000 tree {folder}\tfleets\n")
        commit = repository.git("commit-tree", root, "-p", base, "-m", "x")
    (repository.folder / ".git/refs/heads/big").write_text(f"{commit}\n")  # `git update-ref` would load it
    (repository.folder / ".git/HEAD").write_text("ref: refs/heads/big\n")
    return repository


def made(repository: GitFolder, rows: str) -> str:
    """Return a tree of these rows, written by git."""
    return subprocess.run(["git", "-C", str(repository.folder), "mktree"], input=rows, text=True, check=True,
                          capture_output=True, env=repository.environ).stdout.strip()


@pytest.mark.parametrize(("large", "why"), [
    ("blob", "larger than 8 MiB"), ("link", "it is a link of more than 4096 bytes")], indirect=["large"])
def test_a_huge_file_or_link_is_a_problem_of_its_own(large: GitFolder, why: str) -> None:
    repository = repository_of("fleets", large.environ)
    [problem] = inspect_fleet(["fleets"], tree=GitTree(repository, repository.commit("HEAD"))).errors
    assert (problem.file, why in problem.message) == ("fleets/big.yaml", True)
    sides = read_sides(*files_of_sides("HEAD~1", "HEAD", [PATH, "fleets/other.yaml"], large.environ), bytes)
    assert [side.fleet.models[0].replicas for side in sides if side.fleet] == [3, 3], "a file beside it is read"
    facts = git_facts([PATH], large.environ)
    assert facts is not None
    assert facts.commit == large.git("rev-parse", "big")


@pytest.mark.parametrize("large", ["tree", "commit"], indirect=True)
@pytest.mark.parametrize("compared", [("HEAD~1", "HEAD"), ("main", "HEAD"), ("HEAD~1...HEAD", None)])
def test_a_huge_tree_or_commit_is_an_error_at_once(large: GitFolder, compared: tuple[str, str | None]) -> None:
    """The heap of git is limited, so a command that must hold the object fails."""
    with pytest.raises(RevisionError, match=r"is too large: 1572|needs more than 192 MiB of memory"):
        read_sides(*files_of_sides(*compared, [PATH, "fleets/other.yaml"], large.environ), bytes)


def test_warnings_of_git_do_not_stop_the_reading(repository: GitFolder) -> None:
    """git writes each of these places to its error output, more than a pipe holds, before it answers."""
    places = "".join(f"{repository.folder}/{'x' * 100}/{number}\n" for number in range(2000))
    (repository.folder / ".git/objects/info/alternates").write_text(places)
    found = repository_of(".", repository.environ)
    objects = Objects(dataclasses.replace(found.git, timeout_s=60))
    assert objects.read(repository.git("rev-parse", f"HEAD:{PATH}"), "blob", 5000).startswith(b"apiVersion")
    with pytest.raises(MissingObject, match="is missing in this clone"):
        objects.read("1" * 40, "blob", 5000)


def test_the_size_is_asked_before_the_content_is_read(repository: GitFolder) -> None:
    repository.commit({"big": b"x" * 5000})
    objects, blob = objects_of(repository), repository.git("rev-parse", "HEAD:big")
    with pytest.raises(LargeObject, match="is too large: 5000 bytes; at most 4999 are read"):
        objects.read(blob, "blob", 4999)
    assert objects.read(blob, "blob", 5000) == b"x" * 5000


def test_an_object_of_another_kind_or_a_missing_one_is_an_error(repository: GitFolder) -> None:
    objects, tree = objects_of(repository), repository.git("rev-parse", "HEAD^{tree}")
    with pytest.raises(RevisionError, match=f"git object {tree} is a tree, not a blob"):
        objects.read(tree, "blob")
    with pytest.raises(MissingObject, match=f"{'1' * 40} is missing in this clone"):
        objects.read("1" * 40, "blob")
    assert objects.tree(tree).keys() == {"fleets"}, "and the next one is read"


@pytest.mark.parametrize("content", [b"x", b"100644 a", b"100644 a\0" + b"1" * 19, b"100644 \0" + b"1" * 20,
                                     b"100644 a/b\0" + b"1" * 20, b"rw a\0" + b"1" * 20,
                                     (b"100644 a\0" + b"1" * 20) * 2])
def test_a_tree_that_cannot_be_read_is_an_error(repository: GitFolder, content: bytes) -> None:
    tree = write_object(repository.folder / ".git/objects", "tree", content)
    with pytest.raises(RevisionError, match=f"git tree {tree} cannot be read"):
        objects_of(repository).tree(tree)


@pytest.mark.parametrize("content", [b"", b"tree x\n\n", b"tree\n\n", b"parent 1\n\n"])
def test_a_commit_that_cannot_be_read_is_an_error(repository: GitFolder, content: bytes) -> None:
    commit = write_object(repository.folder / ".git/objects", "commit", content)
    with pytest.raises(RevisionError, match=f"git commit {commit} cannot be read"):
        objects_of(repository).commit(commit)


def test_a_loop_of_tags_ends() -> None:
    class Loop(Objects):
        def _ask(self, object_ids: Sequence[str], wanted: str, most: int) -> Iterator[tuple[str, bytes]]:
            yield "tag", b"object " + b"1" * 40 + b"\ntype tag\n"

    assert Loop.peeled(object.__new__(Loop), "1" * 40) is None


def test_the_processes_that_read_objects_end_with_their_reader(repository: GitFolder) -> None:
    objects = objects_of(repository)
    objects.commit(repository.git("rev-parse", "HEAD"))
    pids = [conversation.child._process.pid for conversation in objects._conversations.values()]
    assert [os.kill(pid, 0) for pid in pids] == [None, None]
    del objects
    gc.collect()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_git_that_does_not_answer_is_an_error(repository: GitFolder, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "bin/git").chmod(0o755)
    environ = {**repository.environ, "PATH": f"{tmp_path}/bin:{repository.environ['PATH']}"}
    git = Git(own_git_dir(repository.folder / ".git", environ), environ, timeout_s=0.05)
    with pytest.raises(RevisionError, match=r"git cat-file did not answer within 0\.05 s"):
        Objects(git).read("1" * 40, "blob")
