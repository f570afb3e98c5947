"""The files a run reads, so that it does not write its result over one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from fleetctl.errors import UsageError


def files_read(paths: Iterable[str | None]) -> set[Path]:
    """Return the real paths of what the flags and arguments name: files, and the fleet files of folders.

    None and standard input are no files; a folder that cannot be listed is left to whoever reads it.
    """
    return {file.resolve() for path in paths if path and path != "-" for file in _files(path)}


def refuse_to_overwrite(flag: str, out: Path | None, reading: Iterable[str | None]) -> None:
    """Raise UsageError when the file that `flag` would write is one that this run reads."""
    if out is not None and out.resolve() in files_read(reading):
        raise UsageError(f"{flag} {out}: {already_read(out)}", hint="name another file")


def already_read(path: Path) -> str:
    """Say why a file is not to be written."""
    return f"{path} is read by this run"


def _files(path: str) -> Iterator[Path]:
    from fleetctl.fleetfile.file_tree import DISK
    from fleetctl.fleetfile.sources import fleet_files

    if not DISK.is_folder(path):
        yield Path(path)
        return
    try:
        names = fleet_files(path, DISK)
    except OSError:
        return
    yield from (Path(path) / name for name in names)
