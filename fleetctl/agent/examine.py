"""Examine: look at every node for the doctor. Reads only, and claims nothing."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any, Dict, List, Mapping

from . import node
from .environment import node_environment
from .events import EventStream
from .lock import left_locks
from .needs import unmet_needs
from .on_nodes import tell_answers
from .orphans import find_orphans


def run_examine(request: Mapping[str, Any], events: EventStream) -> int:
    """Ask every node of the request for what it has, and Ray's table for locks that were left."""
    events.begin(request)
    silent = tell_answers(look_around, request, events, "nodeExamined", "examined")
    events.emit("locksLeft", "locks that were left", locks=left_locks())
    return events.end(0, f"{len(request['nodes']) - silent} of {len(request['nodes'])} nodes answered")


def look_around(needs: List[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return what is to be said of this node; runs there."""
    return {"unmet": unmet_needs(needs, node_environment()), "orphans": find_orphans(),
            "disks": [disk(path) for path in dict.fromkeys((node.log_path(""), tempfile.gettempdir()))]}


def disk(path: str) -> Dict[str, Any]:
    """Return the size of a path's file system, and the part of it that is free for us."""
    usage = shutil.disk_usage(path)
    return {"path": path, "total": usage.total, "free": usage.free}
