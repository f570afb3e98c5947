"""Notes about weights on this node's disk, in Ray's session log folder: the dashboard serves it.

One note says that weights are complete, and since when they are verified. If another process removes the files, it is
wrong, and the next start there fetches them again. Another note says that a file was found wrong.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import ray

from .mark import utc_now
from .node import log_path
from .own_files import replace_own
from .weights.check import Finding
from .weights.fetch import Fetched
from .weights.store import Entry
from .weights.verified import Verified

NOTE, WRONG_NOTE = "fleetctl-cold-", "fleetctl-wrong-"
"""Prefixes of the notes' names; see inventory/cold.py."""
MAX_TROUBLE = 500


def note_cold(root: str, got: Fetched, verified: Verified) -> None:
    """Note the weights that are complete on this node. Never fails, even on a full disk."""
    _note(got.entry, bytes=got.held.size, root=root, verified=verified.since(got.entry, got.held))
    if got.entry.view is not None and got.whole is not None:
        whole = Entry(root, got.entry.artifact, None)
        _note(whole, bytes=got.artifact.size, root=root, verified=verified.since(whole, got.artifact))


def note_wrong(finding: Finding) -> None:
    """Note a wrong file, and what came of it. Never fails."""
    if finding.wrong is not None:
        _note(finding.entry, WRONG_NOTE, file=finding.wrong.path, piece=finding.wrong.piece,
              at=finding.wrong.at or utc_now(), reason=finding.wrong.reason, now=finding.what,
              trouble=finding.trouble[:MAX_TROUBLE])


def _note(entry: Entry, prefix: str = NOTE, **facts: Any) -> None:
    path = f"{path_prefix(entry.artifact, prefix)}{f'-{entry.view}' if entry.view else ''}.json"
    content = {"artifact": entry.artifact, "view": entry.view, "at": utc_now(), **facts}
    with contextlib.suppress(OSError):
        replace_own(path, json.dumps(content).encode())


def path_prefix(artifact: str, prefix: str = NOTE) -> str:
    """Return the path prefix of the notes about an artifact; it has the node id, as nodes may share the folder."""
    return log_path(f"{prefix}{ray.get_runtime_context().get_node_id()}-{artifact}")
