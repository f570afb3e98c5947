"""The arguments of `diff`: revisions, ranges, the working tree, files; ambiguous ones are refused."""

from __future__ import annotations

import pytest
from fleet_texts import fleet
from git_folder import GitFolder

from fleetctl.errors import RevisionError, UsageError
from fleetctl.review.inputs import files_of_sides, load_base, read_sides


def targets(repository: GitFolder, base: str | None = None, head: str | None = None, files: tuple[str, ...] = (),
            stdin: str = "") -> tuple[str, int | None, str, int | None]:
    """Both sides as (name, replicas of the only model, name, replicas); None = the side has no fleet."""
    sides = read_sides(*files_of_sides(base, head, files, repository.environ), stdin.encode)
    shown: list[str | int | None] = []
    for side in sides:
        shown += [side.revision.name, side.fleet.models[0].replicas if side.fleet else None]
    return tuple(shown)  # type: ignore[return-value]


@pytest.fixture
def history(repository: GitFolder) -> GitFolder:
    """Replicas: 3 on main (tag v1), then 4; 7 on branch side from v1, checked out; 9 in the working tree."""
    repository.git("tag", "v1")
    repository.commit({"fleets/prod.yaml": fleet("org/a", replicas=4)})
    repository.git("checkout", "--quiet", "-b", "side", "v1")
    repository.commit({"fleets/prod.yaml": fleet("org/a", replicas=7)})
    (repository.folder / "fleets/prod.yaml").write_text(fleet("org/a", replicas=9))
    (repository.folder / "other.yaml").write_text(fleet("org/a", replicas=20))
    return repository


FILES = ("fleets",)
TREE = "the working tree"


@pytest.mark.parametrize(("base", "head", "files", "expected"), [
    (None, None, FILES, ("HEAD", 7, TREE, 9)),
    ("main", None, FILES, ("main", 4, TREE, 9)),
    ("main", "side", FILES, ("main", 4, "side", 7)),
    ("main..side", None, FILES, ("main", 4, "side", 7)),
    ("main...side", None, FILES, ("main...side", 3, "side", 7)),
    ("main...", None, FILES, ("main...HEAD", 3, "HEAD", 7)),
    ("..main", None, FILES, ("HEAD", 7, "main", 4)),
    ("HEAD~1", "v1", FILES, ("HEAD~1", 3, "v1", 3)),
    ("fleets/prod.yaml", None, (), ("HEAD", 7, TREE, 9)),
    ("other.yaml", "fleets/prod.yaml", (), ("other.yaml", 20, "fleets/prod.yaml", 9)),
    ("other.yaml", "fleets", (), ("other.yaml", 20, "fleets", 9)),
    ("other.yaml", None, FILES, ("other.yaml", 20, TREE, 9)),
    ("other.yaml", "main", FILES, ("other.yaml", 20, "main", 4)),
    ("main", "other.yaml", FILES, ("main", 4, "other.yaml", 20)),
    ("main", "fleets/prod.yaml", (), ("main", 4, "fleets/prod.yaml", 9)),
    ("fleets/prod.yaml", "main", (), ("fleets/prod.yaml", 9, "main", 4)),
    ("-", "other.yaml", (), ("-", 1, "other.yaml", 20)),
    ("other.yaml", "-", (), ("other.yaml", 20, "-", 1)),
    ("other.yaml", None, ("-",), ("other.yaml", 20, TREE, 1)),
])
def test_arguments_choose_the_two_sides(
    history: GitFolder, base: str | None, head: str | None, files: tuple[str, ...],
    expected: tuple[str, int, str, int],
) -> None:
    assert targets(history, base, head, files, stdin=fleet("org/a", replicas=1)) == expected


@pytest.fixture
def moved(history: GitFolder) -> GitFolder:
    """The next commit of `history` moves fleets/prod.yaml to new/lab.yaml, with 8 replicas."""
    history.git("checkout", "--quiet", "--force", "side")
    history.git("rm", "--quiet", "--cached", "-r", ".")
    (history.folder / "fleets").rename(history.folder / "new")
    (history.folder / "new/prod.yaml").rename(history.folder / "new/lab.yaml")
    (history.folder / "other.yaml").unlink()
    history.commit({"new/lab.yaml": fleet("org/a", replicas=8)})
    return history


@pytest.mark.parametrize("file", ["new/lab.yaml", "new", "new/"])
@pytest.mark.parametrize(("base", "head", "expected"), [
    ("HEAD~1", None, ("HEAD~1", 7, TREE, 8)),
    ("main", "HEAD", ("main", 4, "HEAD", 8)),
    ("main...", None, ("main...HEAD", 3, "HEAD", 8)),
    ("HEAD", "main", ("HEAD", 8, "main", 4)),
])
def test_a_renamed_file_is_compared_with_its_old_name(
        moved: GitFolder, base: str, head: str | None, file: str, expected: tuple[str, int, str, int]) -> None:
    assert targets(moved, base, head, (file,)) == expected
    assert load_base((file,), base.removesuffix("...") if head else base, moved.environ).fleet


def test_a_renamed_file_given_under_both_names_is_read_once(moved: GitFolder) -> None:
    expected = ("HEAD~1", 7, TREE, 8)
    assert targets(moved, "HEAD~1", None, ("new/lab.yaml", "fleets/prod.yaml")) == expected
    assert targets(moved, "HEAD~1", None, ("fleets", "new/lab.yaml")) == expected


def test_an_uncommitted_rename_is_followed_once_it_is_added(moved: GitFolder) -> None:
    (moved.folder / "new/lab.yaml").rename(moved.folder / "lab.yaml")
    assert targets(moved, None, None, ("lab.yaml",)) == ("HEAD", None, TREE, 8)
    moved.git("add", "--all")
    assert targets(moved, None, None, ("lab.yaml",)) == ("HEAD", 8, TREE, 8)


def test_a_new_file_is_not_a_rename_of_a_remaining_one(history: GitFolder) -> None:
    history.commit({"copy.yaml": fleet("org/a", replicas=7)})
    assert targets(history, "HEAD~1", None, ("copy.yaml",)) == ("HEAD~1", None, TREE, 7)


def test_a_side_knows_its_commit_and_its_files(history: GitFolder) -> None:
    base, head = files_of_sides("main", None, FILES, history.environ)
    assert base.revision.model_dump() == {"name": "main", "commit": history.git("rev-parse", "main"),
                                          "files": ["fleets"]}
    assert head.revision.model_dump() == {"name": TREE, "commit": None, "files": ["fleets"]}


@pytest.mark.parametrize(("base", "head", "files", "words"), [
    (None, None, (), "no fleet files"),
    ("main", None, (), "no fleet files"),
    ("main...side", "v1", FILES, "already names both sides"),
    ("main", None, ("-",), "standard input has no revision main"),
    (None, None, ("-",), "standard input has no revision HEAD"),
    ("", None, FILES, "BASE is empty; is a variable unset"),
    (" ", None, FILES, "BASE is empty; is a variable unset"),
    ("main", "", FILES, "HEAD is empty; is a variable unset"),
])
def test_unclear_arguments_are_usage_errors(
    history: GitFolder, base: str | None, head: str | None, files: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        targets(history, base, head, files)


@pytest.mark.parametrize(("base", "head", "files", "words"), [
    ("absent.yaml", "other.yaml", (), "absent.yaml: no such file or folder"),
    ("./absent", "other.yaml", (), "./absent: no such file or folder"),
    (None, None, ("typo.yaml",), "typo.yaml: neither in HEAD nor in the working tree"),
])
def test_files_that_do_not_exist_are_not_found(
    history: GitFolder, base: str | None, head: str | None, files: tuple[str, ...], words: str
) -> None:
    with pytest.raises(RevisionError, match=words):
        targets(history, base, head, files)


def test_an_argument_that_is_both_path_and_revision_is_refused(history: GitFolder) -> None:
    (history.folder / "main").write_text(fleet("org/a", replicas=5))
    with pytest.raises(UsageError, match="main is both a revision and a path") as caught:
        targets(history, "main", None, FILES)
    assert caught.value.hint == "write ./main for the path, or main~0 for the revision"
    assert targets(history, "./main", None, FILES) == ("./main", 5, TREE, 9)
    assert targets(history, "main~0", None, FILES) == ("main~0", 4, TREE, 9)


def test_a_missing_revision_is_an_error(history: GitFolder) -> None:
    with pytest.raises(RevisionError, match="git has no revision 'mian'"):
        targets(history, "mian", None, FILES)


def test_files_outside_of_the_repository_have_no_revision(history: GitFolder) -> None:
    (history.folder.parent / "elsewhere.yaml").write_text(fleet("org/a"))
    with pytest.raises(RevisionError, match=r"\.\./elsewhere.yaml is outside of the git repository"):
        targets(history, "main", None, ("fleets", "../elsewhere.yaml"))


def test_two_files_need_no_git(history: GitFolder) -> None:
    history.environ["PATH"] = ""
    assert targets(history, "./other.yaml", "./fleets") == ("./other.yaml", 20, "./fleets", 9)
