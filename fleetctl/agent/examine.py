"""Examine: look at every node for the doctor: what engines need there, what is left of them. Claims nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import holders, node, sockets
from .environment import node_environment
from .events import EventStream
from .lock import left_locks
from .on_nodes import tell_answers
from .orphans import find_orphans, mark_of
from .ports import LOOPBACKS, taken_by

RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
Unmet = Optional[Tuple[str, str]]
"""Code and message of a need that is not met."""


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


def unmet_needs(needs: List[Mapping[str, Any]], environ: Mapping[str, str]) -> List[Dict[str, Any]]:
    """Return which of the needs are not met; `environ` is the one that engines get."""
    checks = {"command": lambda need: command(need["value"], need.get("path") or environ.get("PATH", os.defpath)),
              "variable": lambda need: variable(need["value"], environ), "workdir": lambda need: workdir(need["value"]),
              "port": lambda need: port(int(need["value"]))}
    found: List[Dict[str, Any]] = []
    for need in needs:
        unmet = checks[need["kind"]](need)
        if unmet:
            found.append({**need, "code": unmet[0], "message": unmet[1]})
    return found


def command(name: str, path: str) -> Unmet:
    """Look a command up as the engine's start does; one with a slash that is not absolute depends on its folder."""
    if "/" in name and not name.startswith("/"):
        return None
    if shutil.which(name, path=path):
        return None
    what = "is no program there" if name.startswith("/") else f"is not on its PATH ({path})"
    return "COMMAND_MISSING", f"{name} {what}"


def variable(name: str, environ: Mapping[str, str]) -> Unmet:
    """Check that `fromNode` has something to read."""
    return None if name in environ else ("VARIABLE_MISSING", f"the node has no variable {name}")


def workdir(folder: str) -> Unmet:
    """Check that the engine can be in its folder."""
    if os.path.isdir(folder) and os.access(folder, os.X_OK):
        return None
    return "WORKDIR_MISSING", f"{folder} is no folder that this user can enter"


def port(number: int) -> Unmet:
    """Check that a fixed port is free, or an engine of ours has it, and that nothing else may get it by chance."""
    there = {one.link for host in LOOPBACKS for one in sockets.answering(number, host)}
    if any(mark_of(one.pid) for one in holders.holders(there, holders.neighbours()).values()):
        return None
    taken = taken_by(number, LOOPBACKS, 0)
    if taken:
        return "PORT_TAKEN", f"port {number} is in use by {taken}"
    low, high = outgoing_range()
    if low <= number <= high:
        return "PORT_IN_RANGE", (f"Linux may give port {number} to any outgoing connection ({low} to {high}) before the"
                                 " engine has it")
    return None


def outgoing_range() -> Tuple[int, int]:
    """Return the ports that Linux gives to connections and to whoever asks for any port."""
    try:
        with open(RANGE, encoding="ascii") as text:
            low, high = map(int, text.read().split())
    except (OSError, ValueError):
        return 0, -1
    return low, high
