"""Prune: the explicit verb that removes files of weights from the disks of nodes, and only what a person agreed to.

It ends nothing: what a process of the node uses stays. Apply never imports this.
"""

from __future__ import annotations

import contextlib
import glob
import os
from functools import partial
from typing import Any, Callable, Dict, List, Mapping

from .cold import start_of_path
from .events import EventStream
from .on_nodes import tell_answers
from .weights.cache import cached, remove
from .weights.store import cache_root


def _ask(question: Callable[[Any], Any], request: Mapping[str, Any], events: EventStream) -> int:
    events.begin(request)
    silent = tell_answers(question, request, events, "weightsCached", "answered")
    return events.end(3 if silent else 0, f"{len(request['nodes']) - silent} of {len(request['nodes'])} nodes answered")


def list_here(keep: List[str]) -> Dict[str, Any]:
    """Return what is in the cache of this node, but for the artifacts to keep; runs there."""
    root = cache_root()
    return {"root": root, "artifacts": [one for one in cached(root) if one["artifact"] not in keep]}


def remove_here(artifacts: List[str]) -> Dict[str, Any]:
    """Remove artifacts from the cache of this node, each for itself; runs there."""
    root = cache_root()
    return {"root": root, "artifacts": [
        {**one, **_outcome(root, one["artifact"])} for one in cached(root) if one["artifact"] in artifacts]}


def _outcome(root: str, artifact: str) -> Dict[str, Any]:
    try:
        return {"removed": _removed(root, artifact)}
    except OSError as error:
        return {"removed": False, "trouble": error.strerror or str(error)}


def _removed(root: str, artifact: str) -> bool:
    removed = remove(root, artifact)
    for path in glob.glob(f"{glob.escape(start_of_path(artifact))}*.json") if removed else []:
        with contextlib.suppress(OSError):
            os.remove(path)
    return removed


run_caches = partial(_ask, list_here)
"""Say which weights each node has on its disk, but for those to keep."""
run_prune = partial(_ask, remove_here)
"""Remove the weights that the request names for each node, as far as nothing uses them."""
