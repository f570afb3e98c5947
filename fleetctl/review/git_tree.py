"""The files of a git commit, read as if they were on disk. Paths are relative to the current folder, as given."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.fleetfile.file_tree import MAX_LINKS, Link
from fleetctl.fleetfile.sources import MAX_FILE_BYTES
from fleetctl.review.git_objects import Entry, LargeObject, MissingObject
from fleetctl.review.revisions import Commit, Repository

MAX_LINK_BYTES = 4096
_FOLDER, _LINK, _SUBMODULE = stat.S_IFDIR, stat.S_IFLNK, 0o160000
_ROOT = Entry(_FOLDER, "")


@dataclass(frozen=True, slots=True)
class GitTree:
    """The files of `commit`. Symbolic links are followed inside the tree; a link out of it cannot be read."""

    repository: Repository
    commit: Commit
    _folders: dict[str, Mapping[str, Entry]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def in_checkout(self, path: str, given: str) -> bool:  # noqa: ARG002  a commit is one checkout
        """Return whether `path` is inside the repository, even if the commit does not have it."""
        return self.inside(path) is not None

    def link_out(self, path: str, *, listed: bool = False) -> Link | None:  # noqa: ARG002
        """Return None: a link out of the commit has no target; reading it reports that."""
        return None

    def is_folder(self, path: str) -> bool:
        """Return whether `path` is a folder in this commit."""
        return self._kind(self.inside(path)) == _FOLDER

    def is_file(self, path: str) -> bool:
        """Return whether `path` is a file; one behind a link out or in a submodule counts, but cannot be read."""
        return self._is_file(self.inside(path))

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files in a folder, sorted."""
        real, _ = self._follow(self._required(folder))
        return sorted(name for name, entry in self._listing(real).items()
                      if entry.is_file or (entry.is_link and self._is_file(posixpath.join(real, name))))

    def read(self, path: str, limit: int) -> bytes:
        """Return the file's bytes, at most `limit` of them; raises OSError with EFBIG if it has far more."""
        _, entry = self._follow(self._required(path))
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._content(entry, path, max(limit, MAX_FILE_BYTES))[:limit]

    def identity(self, path: str) -> str:
        """Return the path from the repository's top, with all links followed."""
        inside = self.inside(path)
        if inside is None:
            return path
        try:
            return self._follow(inside)[0]
        except OSError:
            return inside

    def inside(self, path: str) -> str | None:
        """Return `path` from the repository's top, or None if it is outside."""
        top = self.repository.top
        if "\0" in path:  # not allowed in file names, and system calls reject it
            return None
        if top is None:
            inside = posixpath.normpath(path)
            return None if inside.startswith(("..", "/")) else _plain(inside)
        given = posixpath.normpath(posixpath.join(self._here(), path))
        # an absolute path may reach the repository through a link outside of it, such as /tmp on macOS
        resolved = posixpath.join(posixpath.realpath(posixpath.dirname(given)), posixpath.basename(given))
        for candidate in (given, resolved):
            inside = posixpath.relpath(candidate, top)
            if inside != ".." and not inside.startswith("../"):
                return _plain(inside)
        return None

    def _here(self) -> str:
        """Return the current folder as the shell came there: a change may have put a link in its place."""
        came_by = self.repository.git.environ.get("PWD", "")
        with suppress(OSError, ValueError):
            if posixpath.isabs(came_by) and Path(came_by).samefile("."):
                return came_by
        return posixpath.realpath(".")

    def _required(self, path: str) -> str:
        inside = self.inside(path)
        if inside is None:
            raise FileNotFoundError(errno.ENOENT, "it is outside of the repository", path)
        return inside

    def _is_file(self, inside: str | None) -> bool:
        return self._kind(inside) not in (None, _FOLDER, _SUBMODULE)

    def _kind(self, inside: str | None) -> int | None:
        """Return the kind of what a path from the top leads to; None if that is nothing, or outside."""
        if inside is None:
            return None
        try:
            entry = self._follow(inside)[1]
        except _NotHereError:
            return _LINK
        except OSError:
            return None
        return stat.S_IFMT(entry.mode) if entry else None

    def _follow(self, inside: str) -> tuple[str, Entry | None]:
        """Walk down the tree; returns the real path and its entry, None if it is missing."""
        todo, done, links = [part for part in reversed(inside.split("/")) if part], "", 0
        entry: Entry | None = _ROOT
        while todo:
            part = todo.pop()
            entry = self._listing(done).get(part) if entry is not None and entry.is_folder else None
            if entry is not None and entry.is_link:
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), inside)
                target = self._target(posixpath.join(done, part), entry)
                todo += [step for step in reversed(target.split("/")) if step]
                done, entry = "", _ROOT
            else:
                done = posixpath.join(done, part)
                if todo and entry is not None and entry.is_submodule:
                    raise _NotHereError(errno.ENOENT, f"it is in the submodule {done}; submodules are not read", inside)
        return done, entry

    def _target(self, link: str, entry: Entry) -> str:
        """Return the target of a link, from the top; raises OSError if it is outside of the tree."""
        try:
            target = os.fsdecode(self._content(entry, link, MAX_LINK_BYTES))
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            raise _NotHereError(errno.ENAMETOOLONG, f"it is a link of more than {MAX_LINK_BYTES} bytes", link) from None
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(link), target))
        if posixpath.isabs(target) or inside == ".." or inside.startswith("../"):
            raise _NotHereError(errno.ENOENT, f"it is a link out of the repository, to {target}", link)
        return _plain(inside)

    def _listing(self, folder: str) -> Mapping[str, Entry]:
        if folder not in self._folders:
            objects = self.repository.objects
            above, name = posixpath.split(folder)
            entry = self._listing(above).get(name) if folder else Entry(_FOLDER, objects.commit(self.commit.id).tree)
            self._folders[folder] = objects.tree(entry.id) if entry is not None and entry.is_folder else {}
        return self._folders[folder]

    def _content(self, entry: Entry, path: str, most: int) -> bytes:
        try:
            return self.repository.objects.read(entry.id, "blob", most)
        except MissingObject as error:
            raise _NotHereError(errno.EIO, error.message, path) from None
        except LargeObject:
            raise _NotHereError(errno.EFBIG, f"larger than {most >> 20} MiB", path) from None


class _NotHereError(OSError):
    """Reported as a problem of the fleet file, like any OSError."""


def _plain(inside: str) -> str:
    return "" if inside == "." else inside
