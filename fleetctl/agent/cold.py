"""What is complete on this node's disk, noted in Ray's session log folder, where the dashboard lists it.

Where somebody else removes the files a note is wrong: the next start there fetches them again.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Optional

import ray

from .mark import utc_now
from .node import log_path
from .weights.fetch import Fetched

NOTE = "fleetctl-cold-"


def note_cold(root: str, got: Fetched) -> None:
    """Note what is complete on this node. A full disk is no reason to fail."""
    _note(root, got.entry.artifact, got.entry.view, got.held.size)
    if got.entry.view is not None and got.whole is not None:
        _note(root, got.entry.artifact, None, got.artifact.size)


def _note(root: str, artifact: str, view: Optional[str], size: int) -> None:
    path = f"{start_of_path(artifact)}{f'-{view}' if view else ''}.json"
    with contextlib.suppress(OSError):
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as new:
            json.dump({"artifact": artifact, "view": view, "bytes": size, "at": utc_now(), "root": root}, new)
        os.replace(new.name, path)


def start_of_path(artifact: str) -> str:
    """Return how the paths of the notes about an artifact begin: nodes of one machine may share the folder."""
    return log_path(f"{NOTE}{ray.get_runtime_context().get_node_id()}-{artifact}")
