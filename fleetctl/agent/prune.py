"""Prune: the explicit verb that removes weights from the disks of nodes, only those that the user confirmed.

It ends nothing: files that a process uses stay. Apply never imports this.
"""

from __future__ import annotations

import contextlib
import glob
import os
from functools import partial
from typing import Callable, NamedTuple, Sequence

from .events import EventStream
from .model_files import NOTE, WRONG_NOTE, path_prefix
from .on_nodes import report_answers
from .run_messages import CachesRequest
from .weights.store import CachedArtifact, cache_root, cached, remove


class Cache(NamedTuple):
    """The cache of a node: its folder, and the artifacts that were asked for."""

    root: str
    artifacts: Sequence[CachedArtifact]


def _run(task: Callable[[Sequence[str]], Cache], request: CachesRequest, events: EventStream) -> int:
    events.begin(request)
    silent = report_answers(task, request, events, "weightsCached", "answered")
    return events.end(3 if silent else 0, f"{len(request.nodes) - silent} of {len(request.nodes)} nodes answered")


def list_here(keep: Sequence[str]) -> Cache:
    """Return the cached artifacts of the node on which this runs, except those to keep."""
    root = cache_root()
    return Cache(root, [found for found in cached(root) if found.artifact not in keep])


def remove_here(artifacts: Sequence[str]) -> Cache:
    """Remove artifacts from the cache of the node on which this runs; a failure does not stop the others."""
    root = cache_root()
    return Cache(root, [_removed(root, found) for found in cached(root) if found.artifact in artifacts])


def _removed(root: str, found: CachedArtifact) -> CachedArtifact:
    try:
        removed = remove(root, found.artifact)
    except OSError as error:
        return found._replace(removed=False, trouble=error.strerror or str(error))
    for prefix in (NOTE, WRONG_NOTE) if removed else ():
        for path in glob.glob(f"{glob.escape(path_prefix(found.artifact, prefix))}*.json"):
            with contextlib.suppress(OSError):
                os.remove(path)
    return found._replace(removed=removed)


run_caches = partial(_run, list_here)
"""List the weights on each node's disk, except those to keep."""
run_prune = partial(_run, remove_here)
"""Remove the weights that the request names for each node, unless a process uses them."""
