"""The tree of files that a fleet is read from: the disk here, a git revision in `review/`. Paths are as given."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MAX_BYTES = 256 << 20
"""No document is read beyond this."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link to another file, and its target as written."""

    file: str
    target: str


def allowed_in_checkout(given: str) -> str:
    """Return which files are allowed, for the file `given` by the user."""
    return f"a file of the same git repository; without one, a file below the folder above that of {given}"


class FileTree(Protocol):
    """The files that a fleet may be read from. Each method may raise OSError."""

    def is_folder(self, path: str) -> bool:
        """Return whether `path` is a folder."""

    def is_file(self, path: str) -> bool:
        """Return whether `path` is a file that can be read."""

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files in a folder, sorted; not those of folders in it."""

    def read(self, path: str, limit: int) -> bytes:
        """Return the file's bytes, at most `limit` of them."""

    def identity(self, path: str) -> str:
        """Return text that is equal for two paths exactly when they lead to one file."""

    def in_checkout(self, path: str, given: str) -> bool:
        """Return whether `path`, which may not exist, is in the same checkout as the file `given` by the user."""

    def link_out(self, path: str, *, listed: bool = False) -> Link | None:
        """Return the link on the way to `path` that leads out of the checkout that the link is in.

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
        """Return the names of the files in a folder, sorted; links that lead nowhere are among them."""
        return sorted(entry.name for entry in Path(folder).iterdir() if not entry.is_dir())

    def read(self, path: str, limit: int) -> bytes:
        """Return the file's bytes, at most `limit` of them."""
        return _read(path, limit)

    def identity(self, path: str) -> str:
        """Return the path with every link in it followed."""
        return os.path.realpath(path)

    def in_checkout(self, path: str, given: str) -> bool:
        """Return whether `path`, with every link followed, is in the git repository around the folder of `given`.

        `.git` is not part of it. Without a repository the folder around that folder counts, unless it is `/`.
        """
        # realpath accepts missing files and links in a circle, where Path.resolve raises RuntimeError
        folder, real = Path(os.path.realpath(Path(given).parent)), Path(os.path.realpath(path))
        around = folder if folder.parent == Path(folder.anchor) else folder.parent
        top = _repository(folder) or around
        return real.is_relative_to(top) and ".git" not in real.relative_to(top).parts

    def link_out(self, path: str, *, listed: bool = False) -> Link | None:
        """Return the link on the way to `path` that leads out of the checkout that the link is in.

        A path that the user named is followed anywhere, unless a link on the way is in a repository: everyone who may
        change the repository could have made that link.
        """
        for link in [Path(path)] if listed else [Path(path), *Path(path).parents]:
            if (link.is_symlink() and (listed or _repository(Path(os.path.realpath(link.parent))))
                    and not self.in_checkout(str(link), str(link))):
                return Link(str(link), str(link.readlink()))
        return None


def read_whole(path: Path | str, most: int = MAX_BYTES) -> bytes:
    """Return the bytes of a file on this disk; raises OSError, with EFBIG for one of more than `most`."""
    data = _read(path, most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", str(path))
    return data


def _read(path: Path | str, limit: int) -> bytes:
    """Return at most `limit` bytes of a file; raises OSError, also for a pipe without a writer, which would not end."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
        begun = stream.raw.read(1) if stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode) else None
        if begun == b"":
            raise OSError(errno.EPIPE, "a pipe without a writer", str(path))
        os.set_blocking(stream.fileno(), True)
        return (begun or b"") + stream.read(limit - len(begun or b""))


def _repository(folder: Path) -> Path | None:
    return next((top for top in (folder, *folder.parents) if (top / ".git").exists()), None)


DISK = Disk()
