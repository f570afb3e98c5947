"""Saves a document that only its owner may read, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fleetctl.errors import FleetctlError


def save_private(path: Path, text: str) -> None:
    """Write `text` to `path` with mode 0600, replacing what was there in one step.

    Raises FleetctlError when it cannot be written, or when `path` is a folder or a device.
    """
    if path.exists() and not path.is_file():
        raise FleetctlError(f"cannot save to {path}: it is not a regular file", hint="name a file; it may exist")
    try:
        # mkstemp makes it 0600
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FleetctlError(f"cannot save to {path}: {error.strerror}") from None
