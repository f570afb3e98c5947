"""The old name of a renamed fleet file: what git would find, from small files and verified objects only."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fleet_texts import fleet
from git_folder import GitFolder
from hostile_git import forge

from fleetctl.errors import RevisionError
from fleetctl.review import inputs
from fleetctl.review.inputs import former_names
from fleetctl.review.revisions import GitTree, repository_of


def old_names(repository: GitFolder, *files: str, already_read: Sequence[str] = ()) -> list[str]:
    """Return the old names in HEAD~1 of files in HEAD, and check that the index gives the same ones."""
    found = repository_of(".", repository.environ)
    tree, head = GitTree(found, found.commit("HEAD~1")), found.commit("HEAD").id
    names = former_names(tree, files, head, set(already_read))
    assert former_names(tree, files, None, set(already_read)) == names
    return names


def move(repository: GitFolder, moved: dict[str, str], more: dict[str, str | bytes] | None = None) -> None:
    for old, new in moved.items():
        (repository.folder / new).parent.mkdir(parents=True, exist_ok=True)
        (repository.folder / old).rename(repository.folder / new)
    repository.commit(more or {})


def test_a_file_with_the_same_content_is_the_old_one(repository: GitFolder) -> None:
    repository.commit({"a/prod.yaml": fleet("org/a", replicas=7), "a/other.yaml": fleet("org/a", replicas=7)})
    move(repository, {"a/other.yaml": "b/prod.yaml"})
    assert old_names(repository, "b/prod.yaml") == ["a/other.yaml"]
    move(repository, {"b/prod.yaml": "c/x.yaml", "a/prod.yaml": "c/prod.yaml"})
    assert sorted(old_names(repository, "c")) == ["a/prod.yaml", "b/prod.yaml"]
    assert old_names(repository, "c/prod.yaml") == ["a/prod.yaml"], "one of the same name first"


def test_a_file_that_was_also_changed_needs_half_of_the_content(repository: GitFolder) -> None:
    text = "".join(f"# line {number:03}\n" for number in range(100))
    repository.commit({"old.yaml": text, "far.yaml": text.replace("line", "word")})
    half = text[:len(text) // 2]
    move(repository, {"old.yaml": "new.yaml"}, {"new.yaml": half + half.replace("line", "rest"), "far.yaml": ""})
    assert old_names(repository, "new.yaml") == ["old.yaml"]
    move(repository, {"new.yaml": "newer.yaml"}, {"newer.yaml": text.replace("0", "x")})
    assert old_names(repository, "newer.yaml") == []


def test_an_old_file_is_read_under_one_new_name_only(repository: GitFolder) -> None:
    repository.commit({"old.yaml": fleet("org/a", replicas=7)})
    move(repository, {"old.yaml": "one.yaml"}, {"two.yaml": fleet("org/a", replicas=7)})
    assert old_names(repository, "one.yaml", "two.yaml") == ["old.yaml"]


def test_what_was_not_asked_for_or_is_read_already_is_left_out(repository: GitFolder) -> None:
    repository.commit({"a/old.yaml": fleet("org/a", replicas=7)})
    move(repository, {"a/old.yaml": "b/new.yaml"})
    assert old_names(repository, "c", "b/other.yaml") == []
    assert old_names(repository, "b") == old_names(repository, "b/new.yaml") == ["a/old.yaml"]
    for already_read in ("a", "a/old.yaml"):
        assert old_names(repository, "b", already_read=[already_read]) == []


def test_large_files_are_not_read(repository: GitFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "# the same line in both files\n" * 400_000
    repository.commit({"large.yaml": text, "small.yaml": text[:30_000]})
    move(repository, {"large.yaml": "larger.yaml", "small.yaml": "other.yaml"},
         {"larger.yaml": f"{text}#\n", "other.yaml": f"{text[:30_000]}#\n"})
    assert old_names(repository, "larger.yaml") == []
    assert old_names(repository, "other.yaml") == ["small.yaml"]
    monkeypatch.setattr(inputs, "MOST_BYTES", 20_000)
    assert old_names(repository, "other.yaml") == []


def test_a_forged_tree_does_not_make_a_remaining_file_an_old_name(repository: GitFolder) -> None:
    """git lists what came and went without checking the trees."""
    repository.commit({"prod.yaml": fleet("org/a", replicas=7)})
    repository.commit({"copy.yaml": fleet("org/a", replicas=7)})
    assert old_names(repository, "copy.yaml") == []
    tree = repository.git("ls-tree", "-r", "HEAD")
    blob = next(line.split()[2] for line in tree.splitlines() if line.endswith("copy.yaml"))
    forge(repository, "HEAD^{tree}", b"100644 copy.yaml\0" + bytes.fromhex(blob))
    with pytest.raises(RevisionError, match="is forged or damaged"):
        old_names(repository, "copy.yaml")
