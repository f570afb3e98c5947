"""Where files lie that a fleet is read from: the disk here, a git revision in `review/`. Paths are as a person gave
them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class FileTree(Protocol):
    """What reading a fleet asks of a place where files lie. Each method may raise OSError."""

    def is_folder(self, path: str) -> bool:
        """Tell whether `path` is a folder."""

    def is_file(self, path: str) -> bool:
        """Tell whether `path` is a file that can be read."""

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files in a folder, sorted; not those of folders in it."""

    def read(self, path: str, limit: int) -> bytes:
        """Return the file's bytes, at most `limit` of them."""

    def identity(self, path: str) -> str:
        """Return a text that is equal for two paths exactly when they lead to one file."""

    def in_checkout(self, path: str, given: str) -> bool:
        """Tell whether `path`, which need not be there, lies in one checkout with the file `given` by the user."""


class Disk:
    """The files of this machine."""

    def is_folder(self, path: str) -> bool:
        """Tell whether `path` is a folder."""
        return Path(path).is_dir()

    def is_file(self, path: str) -> bool:
        """Tell whether `path` is there and no folder; a pipe counts, too."""
        found = Path(path)
        return found.exists() and not found.is_dir()

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files in a folder, sorted."""
        return sorted(entry.name for entry in Path(folder).iterdir() if entry.is_file())

    def read(self, path: str, limit: int) -> bytes:
        """Return the file's bytes, at most `limit` of them."""
        with Path(path).open("rb") as stream:
            return stream.read(limit)

    def identity(self, path: str) -> str:
        """Return the path with every link in it followed."""
        return str(Path(path).resolve())

    def in_checkout(self, path: str, given: str) -> bool:
        """Tell whether `path`, with every link followed, lies in the git repository around the folder of `given`.

        Its own `.git` is no part of it. Without a repository the folder around that folder counts, if it is not `/`.
        """
        # realpath takes what is missing and links in a circle, for which Path.resolve raises RuntimeError
        top, real = _checkout(Path(os.path.realpath(Path(given).parent))), Path(os.path.realpath(path))
        return real.is_relative_to(top) and ".git" not in real.relative_to(top).parts


def _checkout(folder: Path) -> Path:
    """Return the top of the repository around a folder; the folder above it, where there is none."""
    for top in (folder, *folder.parents):
        if (top / ".git").exists():
            return top
    return folder if folder.parent == Path(folder.anchor) else folder.parent


DISK = Disk()
