"""Writes a text file whole or not at all: a temporary file beside it, then one move."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from fleetctl.errors import FleetctlError


def write_file(path: Path, text: str, *, mode: int | None) -> None:
    """Write `text` to `path` in one step.

    With a `mode` the file is new, whatever had the name before. With None it must exist: its permissions stay, and a
    link to it goes on being one. Raises FleetctlError, `path` untouched, when it cannot be written.
    """
    target = path if mode is not None else path.resolve()
    if not target.is_file() and (mode is None or target.exists()):
        raise FleetctlError(f"cannot write {path}: it is not a regular file", hint="name a file")
    try:
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
