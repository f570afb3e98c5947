"""The artifacts in a node's cache: list them with their sizes, and remove one that no process uses.

Removing an artifact keeps its locks and its index: a process that fetches it again must find the same ones.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any, Dict, Iterator, List, Set, Tuple

from .store import Entry

_ARTIFACT = re.compile(r"[0-9a-f]{64}")
_VIEW = re.compile(r"[0-9a-f]{16}(?=\.|$)")


def cached(root: str) -> Iterator[Dict[str, Any]]:
    """Yield each artifact with files in the cache, including files of an interrupted fetch.

    `bytes` = size of its files and views on disk; `used` = a process uses any of them.
    """
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        entries = _entries(root, name)
        size = sum(_sizes(entries))
        if size:
            yield {"artifact": name, "bytes": size, "used": not _unless_used(entries, wipe=False)}


def remove(root: str, artifact: str) -> bool:
    """Remove an artifact and all its views; returns False if there is none or a process uses it."""
    entries = _entries(root, artifact)
    return bool(entries) and _unless_used(entries, wipe=True)


def _unless_used(entries: List[Entry], wipe: bool) -> bool:
    """Return whether no process uses any of the entries; with `wipe`, also remove them if so."""
    with contextlib.ExitStack() as locks:
        if not all(locks.enter_context(entry.unused()) for entry in entries):
            return False
        if wipe:
            for entry in entries:
                entry.wipe()
        return True


def _entries(root: str, artifact: str) -> List[Entry]:
    """Return the entries of an artifact; none if the name is not an artifact's. Symlinked folders are skipped."""
    if not _ARTIFACT.fullmatch(artifact) or not _is_folder(os.path.join(root, artifact)):
        return []
    views = os.path.join(root, artifact, "views")
    matches = map(_VIEW.match, os.listdir(views) if _is_folder(views) else [])
    return [Entry(root, artifact, view) for view in [None, *sorted({match[0] for match in matches if match})]]


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _sizes(entries: List[Entry]) -> Iterator[int]:
    """Yield the size of each file once: views may share files with the artifact."""
    seen: Set[Tuple[int, int]] = set()
    for entry in entries:
        for top in (entry.folder, entry.folder + ".part"):
            for folder, _, names in os.walk(top) if _is_folder(top) else []:
                for name in names:
                    try:
                        stat = os.lstat(os.path.join(folder, name))
                    except FileNotFoundError:  # a fetch has just renamed it
                        continue
                    if (stat.st_dev, stat.st_ino) not in seen:
                        seen.add((stat.st_dev, stat.st_ino))
                        yield stat.st_size
