"""The files of a git commit, read as if they were on disk. Paths are relative to the current folder, as given."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.fleetfile.file_tree import Link
from fleetctl.fleetfile.sources import is_fleet_file
from fleetctl.review.git_command import error_line
from fleetctl.review.revisions import Commit, Repository

MAX_LINKS = 40
_FOLDER, _LINK, _SUBMODULE = "040000", "120000", "160000"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of a git tree: `<mode> <type> <id>`."""

    mode: str
    id: str


@dataclass(frozen=True, slots=True)
class GitTree:
    """The files of `commit`. Symbolic links are followed inside the tree; a link out of it cannot be read."""

    repository: Repository
    commit: Commit
    _folders: dict[str, Mapping[str, _Entry]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def in_checkout(self, path: str, given: str) -> bool:  # noqa: ARG002  a commit is one checkout
        """Return whether `path` is inside the repository, even if the commit does not have it."""
        return self._inside(path) is not None

    def link_out(self, path: str, *, listed: bool = False) -> Link | None:  # noqa: ARG002
        """Return None: a link out of the commit has no target; reading it reports that."""
        return None

    def is_folder(self, path: str) -> bool:
        """Return whether `path` is a folder in this commit."""
        return self._mode(path) == _FOLDER

    def is_file(self, path: str) -> bool:
        """Return whether `path` is a file; one behind a link out or in a submodule counts, but cannot be read."""
        return self._mode(path) not in (None, _FOLDER, _SUBMODULE)

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files in a folder, sorted."""
        real, _ = self._follow(self._required(folder))
        return sorted(name for name in self._listing(real) if self.is_file(posixpath.join(folder, name)))

    def read(self, path: str, limit: int) -> bytes:
        """Return the file's bytes, at most `limit` of them."""
        _, entry = self._follow(self._required(path))
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._content(entry)[:limit]

    def identity(self, path: str) -> str:
        """Return the path from the repository's top, with all links followed."""
        inside = self._inside(path)
        if inside is None:
            return path
        try:
            return self._follow(inside)[0]
        except OSError:
            return inside

    def former_names(self, path: str, renames: Mapping[str, str]) -> Sequence[str]:
        """Return the old names of a file, or of the fleet files of a folder; `renames` as in `renamed_since`."""
        inside, top = self._inside(path), self.repository.top
        found = (old for new, old in renames.items() if inside == new
                 or (inside == posixpath.dirname(new) and is_fleet_file(posixpath.basename(new))))
        return [posixpath.relpath(posixpath.join(top, old)) if top else old for old in found]

    def _inside(self, path: str) -> str | None:
        """Return `path` from the repository's top, or None if it is outside."""
        top = self.repository.top
        if "\0" in path:  # not allowed in file names, and system calls reject it
            return None
        if top is None:
            inside = posixpath.normpath(path)
            return None if inside.startswith(("..", "/")) else _plain(inside)
        given = posixpath.normpath(posixpath.join(posixpath.realpath("."), path))
        # an absolute path may reach the repository through a link outside of it, such as /tmp on macOS
        resolved = posixpath.join(posixpath.realpath(posixpath.dirname(given)), posixpath.basename(given))
        for candidate in (given, resolved):
            inside = posixpath.relpath(candidate, top)
            if inside != ".." and not inside.startswith("../"):
                return _plain(inside)
        return None

    def _required(self, path: str) -> str:
        inside = self._inside(path)
        if inside is None:
            raise FileNotFoundError(errno.ENOENT, "it is outside of the repository", path)
        return inside

    def _mode(self, path: str) -> str | None:
        inside = self._inside(path)
        if inside is None:
            return None
        try:
            entry = self._follow(inside)[1]
        except _NotHereError:
            return _LINK
        except OSError:
            return None
        return entry.mode if entry else None

    def _follow(self, inside: str) -> tuple[str, _Entry | None]:
        """Walk down the tree; returns the real path and its entry, None if it is missing."""
        todo, done, links = [part for part in reversed(inside.split("/")) if part], "", 0
        entry: _Entry | None = _Entry(_FOLDER, "")
        while todo:
            part = todo.pop()
            entry = self._listing(done).get(part) if entry is not None and entry.mode == _FOLDER else None
            if entry is not None and entry.mode == _LINK:
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), inside)
                target = self._target(posixpath.join(done, part), entry)
                todo += [step for step in reversed(target.split("/")) if step]
                done, entry = "", _Entry(_FOLDER, "")
            else:
                done = posixpath.join(done, part)
                if todo and entry is not None and entry.mode == _SUBMODULE:
                    raise _NotHereError(errno.ENOENT, f"it is in the submodule {done}; submodules are not read", inside)
        return done, entry

    def _target(self, link: str, entry: _Entry) -> str:
        """Return the target of a link, from the top; raises OSError if it is outside of the tree."""
        target = os.fsdecode(self._content(entry))
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(link), target))
        if posixpath.isabs(target) or inside == ".." or inside.startswith("../"):
            raise _NotHereError(errno.ENOENT, f"it is a link out of the repository, to {target}", link)
        return _plain(inside)

    def _listing(self, folder: str) -> Mapping[str, _Entry]:
        if folder not in self._folders:
            printed = self._git("ls-tree", "-z", "--full-tree", f"{self.commit.id}:{folder}")
            lines = (os.fsdecode(line).partition("\t") for line in printed.split(b"\0") if line)
            self._folders[folder] = {name: _Entry(*head.split(" ")[::2]) for head, _, name in lines}
        return self._folders[folder]

    def _content(self, entry: _Entry) -> bytes:
        return self._git("cat-file", "blob", entry.id)

    def _git(self, *arguments: str) -> bytes:
        done = self.repository.git.run(*arguments)
        if done.returncode:
            raise _NotHereError(errno.EIO, f"git does not have its content here: {error_line(done)}", arguments[-1])
        return done.stdout


class _NotHereError(OSError):
    """Reported as a problem of the fleet file, like any OSError."""


def _plain(inside: str) -> str:
    return "" if inside == "." else inside
