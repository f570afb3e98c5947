"""A `FileTree` in memory."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Mapping, Sequence

from fleetctl.fleetfile.load import LoadedFleet, inspect_fleet
from fleetctl.fleetfile.resolved import ResolvedFleet


class MemoryTree:
    """`files` are texts by path; `closed` are paths that exist but cannot be read."""

    def __init__(self, files: Mapping[str, str], closed: Sequence[str] = ()) -> None:
        self.files = {**files, **dict.fromkeys(closed, "")}
        self.closed = set(closed)
        self.read_paths: list[str] = []

    def is_folder(self, path: str) -> bool:
        return any(posixpath.dirname(known) == path for known in self.files)

    def is_file(self, path: str) -> bool:
        return path in self.files

    def names(self, folder: str) -> Sequence[str]:
        return sorted(posixpath.basename(path) for path in self.files if (posixpath.dirname(path) or ".") == folder)

    def read(self, path: str, limit: int) -> bytes:
        self.read_paths.append(path)
        if path in self.closed:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return self.files[path].encode()[:limit]

    def identity(self, path: str) -> str:
        return posixpath.normpath(path)

    def in_checkout(self, path: str, given: str) -> bool:
        return not posixpath.normpath(path).startswith("../")

    def link_out(self, path: str, *, listed: bool = False) -> None:
        return None


def inspect(files: Mapping[str, str], *given: str) -> LoadedFleet:
    """Inspect the files `given`, or else `fleet.yaml`."""
    return inspect_fleet(given or ["fleet.yaml"], tree=MemoryTree(files))


def load(files: Mapping[str, str], *given: str) -> ResolvedFleet:
    """Load files that must be valid."""
    loaded = inspect(files, *given)
    assert loaded.fleet is not None, "\n".join(map(str, loaded.problems))
    return loaded.fleet


def messages(files: Mapping[str, str], *given: str) -> list[str]:
    """Return the problems, one line each."""
    return [str(problem) for problem in inspect(files, *given).problems]
