"""Replaces a text file in one step, keeping its permissions and following a link to the file it names."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from fleetctl.errors import FleetctlError


def replace_text(path: Path, text: str) -> None:
    """Write `text` beside `path`, then move it over it; raises FleetctlError, the file untouched, where that fails."""
    target = path.resolve()
    if not target.is_file():
        raise FleetctlError(f"cannot write {path}: it is not a regular file")
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(stat.S_IMODE(target.stat().st_mode))
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FleetctlError(f"cannot write {path}: {error.strerror}") from None
