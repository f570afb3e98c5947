"""A saved plan on its way to apply, read from its file or from standard input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.documents.plan import Plan


def read_saved_plan(path: str) -> Plan:
    """Return the plan in `path`, or on standard input for `-`; raises DocumentError for anything damaged or foreign."""
    from fleetctl.cli.connect import read_stdin
    from fleetctl.documents.loading import load_plan
    from fleetctl.errors import DocumentError

    try:
        data = read_stdin() if path == "-" else Path(path).read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        raise DocumentError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DocumentError(f"{path} is not text, so it is not a plan") from None
    return load_plan(text, path)
