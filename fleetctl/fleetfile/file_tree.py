"""The tree of files that a fleet is read from: the disk here, a git revision in `review/`. Paths stay as given."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MAX_BYTES = 256 << 20
"""The largest document that is read."""
MAX_LINKS = 40
"""The most links on the way to a file, as on Linux."""


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link, and its target as written."""

    file: str
    target: str


def allowed_in_checkout(given: str) -> str:
    """Return the text that says which files are in the checkout of the file `given` by the user."""
    return f"a file of the same git repository; without one, a file below the parent of the folder of {given}"


class FileTree(Protocol):
    """The files that a fleet may be read from. Each method may raise OSError."""

    def is_folder(self, path: str) -> bool:
        """Return whether `path` is a folder."""

    def is_file(self, path: str) -> bool:
        """Return whether `path` is a file that can be read."""

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files in a folder, sorted, without folders."""

    def read(self, path: str, limit: int) -> bytes:
        """Return the file's bytes, at most `limit` of them."""

    def identity(self, path: str) -> str:
        """Return a text that is equal for two paths exactly if they lead to the same file."""

    def in_checkout(self, path: str, given: str) -> bool:
        """Return whether `path`, which may not exist, is in the same checkout as the file `given` by the user."""

    def link_out(self, path: str, *, listed: bool = False) -> Link | None:
        """Return the link on the way to `path` that leads outside its own checkout.

        `listed` = the user named the folder, not the file.
        """


class Disk:
    """The files of this machine."""

    def is_folder(self, path: str) -> bool:
        """Return whether `path` is a folder."""
        return Path(path).is_dir()

    def is_file(self, path: str) -> bool:
        """Return whether `path` exists and is not a folder; a pipe counts too."""
        found = Path(path)
        return found.exists() and not found.is_dir()

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files in a folder, sorted, broken links included."""
        return sorted(entry.name for entry in Path(folder).iterdir() if not entry.is_dir())

    def read(self, path: str, limit: int) -> bytes:
        """Return the file's bytes, at most `limit` of them; raises OSError, also for a pipe without a writer."""
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            first = stream.raw.read(1) if stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode) else None
            if first == b"":  # reading would block
                raise OSError(errno.EPIPE, "a pipe without a writer", path)
            os.set_blocking(stream.fileno(), True)
            return (first or b"") + stream.read(limit - len(first or b""))

    def identity(self, path: str) -> str:
        """Return the path with every link resolved."""
        return os.path.realpath(path)

    def in_checkout(self, path: str, given: str) -> bool:
        """Return whether `path`, with every link resolved, is in the git repository that holds the folder of `given`.

        `.git` is not part of it. Without a repository, the parent of that folder is the checkout, unless it is `/`.
        """
        # realpath accepts missing files and link cycles; Path.resolve raises RuntimeError for a cycle
        folder, real = Path(os.path.realpath(Path(given).parent)), Path(os.path.realpath(path))
        parent = folder if folder.parent == Path(folder.anchor) else folder.parent
        top = _repository(folder) or parent
        return real.is_relative_to(top) and ".git" not in real.relative_to(top).parts

    def link_out(self, path: str, *, listed: bool = False) -> Link | None:
        """Return the link on the way to `path` that leads outside its own checkout.

        A path that the user named is followed anywhere, unless a link on the way is in a repository: anyone with write
        access to the repository could have made that link. A link outside may lead to such a one.
        """
        todo, followed = [Path(path)], 0
        while todo and followed < MAX_LINKS:
            at = todo.pop()
            for link in filter(Path.is_symlink, [at] if listed else [at, *at.parents]):
                folder, followed = Path(os.path.realpath(link.parent)), followed + 1
                if (listed or _repository(folder)) and not self.in_checkout(str(link), str(link)):
                    return Link(str(link), str(link.readlink()))
                if not listed:
                    todo.append(folder / link.readlink())
        return None


def read_whole(path: Path | str, limit: int = MAX_BYTES) -> bytes:
    """Return the bytes of a file on this disk; raises OSError, with EFBIG if there are more than `most`."""
    data = DISK.read(str(path), limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit >> 20} MiB", str(path))
    return data


def _repository(folder: Path) -> Path | None:
    return next((top for top in (folder, *folder.parents) if (top / ".git").exists()), None)


DISK = Disk()
