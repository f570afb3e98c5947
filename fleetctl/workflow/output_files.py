"""Files that a run writes: each completely or not at all, and never over a file that the run reads."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fleetctl.errors import FleetctlError, UsageError
from fleetctl.fleetfile.file_tree import DISK
from fleetctl.fleetfile.sources import fleet_files


def write_file(path: Path, text: str, *, mode: int | None, make_folder: bool = False) -> None:
    """Write `text` to `path` in one step: a temporary file beside it, then one move.

    With a `mode` the file is new and replaces any earlier one. With None it must exist: its permissions stay, and a
    link to it stays a link. `make_folder` = create its folder if missing. Raises FleetctlError, `path` untouched, when
    it cannot be written.
    """
    target = path if mode is not None else real_path(path)
    try:
        if not target.is_file() and (mode is None or target.exists()):
            raise FleetctlError(f"cannot write {path}: it is not a regular file", hint="name a file")
        if make_folder:
            with suppress(OSError):  # writing the file reports the reason
                target.parent.mkdir(parents=True, exist_ok=True)
        kept = stat.S_IMODE(target.stat().st_mode) if mode is None else mode
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
                os.fchmod(descriptor, kept)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FleetctlError(f"cannot write {path}: {error.strerror}") from None


def check_out(out: Path, reading: Iterable[str | None] = ()) -> None:
    """Raise UsageError if a plan's --out is standard output, as it contains env values, or a file that is read."""
    if str(out) == "-":
        raise UsageError("--out needs a file: a saved plan has env values", hint="--format json prints it, masked")
    refuse_to_overwrite("--out", out, reading)


def refuse_to_overwrite(flag: str, out: Path | None, reading: Iterable[str | None]) -> None:
    """Raise UsageError when the file that `flag` would write is one that this run reads."""
    if out is not None and real_path(out) in files_read(reading):
        raise UsageError(f"{flag} {out}: {already_read(out)}", hint="name another file")


def already_read(path: Path) -> str:
    """Return why a file must not be written."""
    return f"{path} is read by this run"


def files_read(paths: Iterable[str | None]) -> set[Path]:
    """Return the real paths of the files that flags and arguments name, including files in folders.

    Skips None, standard input, and folders that cannot be listed: reading them reports that.
    """
    read: set[Path] = set()
    for path in paths:
        with suppress(OSError):
            if path and path != "-":
                files = fleet_files(path, DISK) if DISK.is_folder(path) else [""]
                read.update(real_path(Path(path) / name) for name in files)
    return read


def real_path(path: Path) -> Path:
    """Return a path with every link followed, even in a circle of links, for which Path.resolve raises."""
    return Path(os.path.realpath(path))
