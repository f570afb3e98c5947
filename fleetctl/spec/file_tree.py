"""Where files lie that a fleet is read from: the disk here, a git revision in `review/`. Paths are as a person gave
them.
"""

from __future__ import annotations

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


DISK = Disk()
