"""Notes about weights that are complete on this node's disk, in Ray's session log folder: the dashboard lists it.

If another process removes the files, the note is wrong and the next start there fetches them again.
"""

from __future__ import annotations

import contextlib
import json
from typing import Optional

import ray

from .mark import utc_now
from .node import log_path
from .own_files import replace_own
from .weights.fetch import Fetched

NOTE = "fleetctl-cold-"


def note_cold(root: str, got: Fetched) -> None:
    """Note the weights that are complete on this node. Never fails, even on a full disk."""
    _note(root, got.entry.artifact, got.entry.view, got.held.size)
    if got.entry.view is not None and got.whole is not None:
        _note(root, got.entry.artifact, None, got.artifact.size)


def _note(root: str, artifact: str, view: Optional[str], size: int) -> None:
    path = f"{path_prefix(artifact)}{f'-{view}' if view else ''}.json"
    with contextlib.suppress(OSError):
        replace_own(path, json.dumps(
            {"artifact": artifact, "view": view, "bytes": size, "at": utc_now(), "root": root}).encode())


def path_prefix(artifact: str) -> str:
    """Return the path prefix of the notes about an artifact; it has the node id, as nodes may share the folder."""
    return log_path(f"{NOTE}{ray.get_runtime_context().get_node_id()}-{artifact}")
