"""All that is in a node's cache: its artifacts with their sizes, and how one is removed that no process uses.

The locks and the index of an artifact stay: a process that begins to fetch it again must find the same ones.
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
    """Yield the artifacts that have files in the cache, also those of a fetch that broke off.

    Of each, the bytes of its files and views on the disk, and whether a process uses any of them.
    """
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        entries = _entries(root, name)
        size = sum(_sizes(entries))
        if size:
            yield {"artifact": name, "bytes": size, "used": not _unless_used(entries, wipe=False)}


def remove(root: str, artifact: str) -> bool:
    """Remove an artifact with all its views; returns whether it did, for a process may use one of them."""
    entries = _entries(root, artifact)
    return bool(entries) and _unless_used(entries, wipe=True)


def _unless_used(entries: List[Entry], wipe: bool) -> bool:
    """Return whether no process uses any of the entries; `wipe` = then remove them all."""
    with contextlib.ExitStack() as held:
        if not all(held.enter_context(entry.unused()) for entry in entries):
            return False
        for entry in entries if wipe else []:
            entry.wipe()
        return True


def _entries(root: str, artifact: str) -> List[Entry]:
    """Return the folders of an artifact: none for another name; what is elsewhere, by a link, is left out."""
    if not _ARTIFACT.fullmatch(artifact) or not _is_folder(os.path.join(root, artifact)):
        return []
    views = os.path.join(root, artifact, "views")
    found = map(_VIEW.match, os.listdir(views) if _is_folder(views) else [])
    return [Entry(root, artifact, view) for view in [None, *sorted({one[0] for one in found if one})]]


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _sizes(entries: List[Entry]) -> Iterator[int]:
    """Yield the size of each file once: views may share files with the artifact."""
    seen: Set[Tuple[int, int]] = set()
    for entry in entries:
        for top in (entry.folder, entry.folder + ".part"):
            for where, _, names in os.walk(top) if _is_folder(top) else []:
                for name in names:
                    try:
                        found = os.lstat(os.path.join(where, name))
                    except FileNotFoundError:  # a fetch has just renamed it
                        continue
                    if (found.st_dev, found.st_ino) not in seen:
                        seen.add((found.st_dev, found.st_ino))
                        yield found.st_size
