"""The old names of fleet files that were renamed since a commit, as git sees it: half of the content is the same.

git lists only which files came and went. The rest is done here: git would read files of any size for it.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetctl.fleetfile.sources import MAX_FILE_BYTES, is_fleet_file
from fleetctl.review.git_command import check
from fleetctl.review.git_objects import Entry, LargeObject, MissingObject
from fleetctl.review.git_tree import GitTree
from fleetctl.review.revisions import Commit

MOST_BYTES = 64 << 20
"""How much is read to find the old names of one file that was also changed."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file that is on one side only, by its path from the top; `gone` = the side is the commit."""

    path: str
    id: str
    gone: bool


def former_names(tree: GitTree, files: Sequence[str], until: str | None, already_read: set[str]) -> list[str]:
    """Return the old names of `files` in the commit of `tree`, as paths like these; of a folder, those of its files.

    `until` = the commit that has the new names; None = the index has them. Names in `already_read`, from the top, and
    files in such a folder are left out. Raises RevisionError for a forged object.
    """
    changed = list(_changed(tree, until))
    gone = [file for file in changed if file.gone and not {file.path, posixpath.dirname(file.path)} & already_read]
    wanted = [tree.inside(file) for file in files]
    came = [file for file in changed if not file.gone and any(
        file.path == inside or (posixpath.dirname(file.path) == inside and is_fleet_file(posixpath.basename(file.path)))
        for inside in wanted)]
    top, found = tree.repository.top, []
    for new in came:
        old = _old_name(tree, new, gone)
        if old is not None:
            gone.remove(old)
            found.append(posixpath.relpath(posixpath.join(top, old.path)) if top else old.path)
    return found


def _changed(tree: GitTree, until: str | None) -> Iterator[_File]:
    """Yield the files that came and went; those that went are in the commit, and not in `until`."""
    compared = ("diff-tree", "-r", tree.commit.id, until) if until else ("diff-index", "--cached", tree.commit.id)
    done = tree.repository.git.run(*compared, "--raw", "--no-renames", "--no-abbrev", "--diff-filter=AD", "-z")
    check(done, compared[0])
    later = GitTree(tree.repository, Commit("", until)) if until else None
    fields = os.fsdecode(done.stdout).split("\0")
    for head, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, old_id, new_id, kind = head.removeprefix(":").split(" ")
        if kind == "A" and stat.S_ISREG(int(new_mode, 8)):
            yield _File(path, new_id, gone=False)
        elif kind == "D" and stat.S_ISREG(int(old_mode, 8)) and _has(tree, path, old_id) \
                and not (later and _has(later, path)):
            yield _File(path, old_id, gone=True)


def _has(tree: GitTree, path: str, object_id: str | None = None) -> bool:
    """Return whether a file is in a commit; git's own list was made from trees it did not check."""
    entry, _ = tree.repository.objects.entry_at(tree.repository.root(tree.commit.id), path.split("/"))
    return isinstance(entry, Entry) and (object_id is None or entry.id == object_id)


def _old_name(tree: GitTree, new: _File, gone: Sequence[_File]) -> _File | None:
    """Return the file with most in common; with the same content one of the same name first."""
    same = [old for old in gone if old.id == new.id]
    if same:
        return min(same, key=lambda old: (posixpath.basename(old.path) != posixpath.basename(new.path), old.path))
    content = _content(tree, new.id)
    if content is None:
        return None
    best, found, left = 0.5, None, MOST_BYTES
    for old in sorted(gone, key=lambda old: (posixpath.basename(old.path) != posixpath.basename(new.path),
                                             not is_fleet_file(posixpath.basename(old.path)), old.path)):
        before = _content(tree, old.id)
        left -= len(before or b"")
        if left < 0:
            break
        if before is not None and (common := _in_common(before, content)) >= best and (found is None or common > best):
            best, found = common, old
    return found


def _content(tree: GitTree, object_id: str) -> bytes | None:
    try:
        return tree.repository.objects.read(object_id, "blob", MAX_FILE_BYTES)
    except (LargeObject, MissingObject):
        return None


def _in_common(one: bytes, other: bytes) -> float:
    """Return the share of the longer content that both have, line by line."""
    lines, others = Counter(one.splitlines(keepends=True)), Counter(other.splitlines(keepends=True))
    return sum(len(line) * count for line, count in (lines & others).items()) / max(len(one), len(other), 1)
