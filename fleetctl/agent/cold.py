"""Notes about weights on this node's disk, in Ray's session log folder: the dashboard serves it.

One note says that weights are complete, and since when they are verified. If another process removes the files, it is
wrong, and the next start there fetches them again. Another note says that a file was found wrong.
"""

from __future__ import annotations

import contextlib
import json
from typing import NamedTuple, Optional, Union

import ray

from .mark import utc_now
from .node import log_path
from .own_files import replace_own
from .weights.check import Finding
from .weights.fetch import Fetched
from .weights.store import Entry
from .weights.verified import Verified
from .wire import document_of

NOTE, WRONG_NOTE = "fleetctl-cold-", "fleetctl-wrong-"
"""Prefixes of the notes' names; see inventory/cold.py."""
MAX_TROUBLE = 500


class ColdNote(NamedTuple):
    """Weights are complete; `verified` = since when all files are, None = some are not. `bytes` of the files."""

    artifact: str
    view: Optional[str]
    at: str
    bytes: int
    root: str
    verified: Optional[str]


class WrongNote(NamedTuple):
    """A file was found wrong, and what came of it: see `check.Finding`."""

    artifact: str
    view: Optional[str]
    at: str
    file: str
    piece: int
    reason: str
    now: str
    trouble: str


def note_cold(root: str, got: Fetched, verified: Verified) -> None:
    """Note the weights that are complete on this node. Never fails, even on a full disk."""
    entries = [(got.entry, got.held)]
    if got.entry.view is not None and got.whole is not None:
        entries.append((Entry(root, got.entry.artifact, None), got.artifact))
    for entry, held in entries:
        _write(NOTE, ColdNote(entry.artifact, entry.view, utc_now(), held.size, root, verified.since(entry, held)))


def note_wrong(finding: Finding) -> None:
    """Note a wrong file, and what came of it. Never fails."""
    entry, wrong = finding.entry, finding.wrong
    if wrong is not None:
        _write(WRONG_NOTE, WrongNote(entry.artifact, entry.view, wrong.at or utc_now(), wrong.path, wrong.piece,
                                     wrong.reason, finding.what, finding.trouble[:MAX_TROUBLE]))


def _write(prefix: str, note: Union[ColdNote, WrongNote]) -> None:
    path = f"{path_prefix(note.artifact, prefix)}{f'-{note.view}' if note.view else ''}.json"
    with contextlib.suppress(OSError):
        replace_own(path, json.dumps(document_of(note)).encode())


def path_prefix(artifact: str, prefix: str = NOTE) -> str:
    """Return the path prefix of the notes about an artifact; it has the node id, as nodes may share the folder."""
    return log_path(f"{prefix}{ray.get_runtime_context().get_node_id()}-{artifact}")
