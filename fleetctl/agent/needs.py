"""What an engine needs on its node, checked there before anything is placed: command, variables, folder, ports."""

from __future__ import annotations

import os
import shutil
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import holders, sockets
from .orphans import mark_of
from .ports import LOOPBACKS, taken_by

RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
Unmet = Optional[Tuple[str, str]]
"""Code and message of a need that is not met."""


def unmet_needs(needs: List[Mapping[str, Any]], node: Mapping[str, str]) -> List[Dict[str, Any]]:
    """Return which of the needs are not met; `node` is the environment that engines get."""
    checks = {"command": lambda need: command(need["value"], need.get("path") or node.get("PATH", os.defpath)),
              "variable": lambda need: variable(need["value"], node), "workdir": lambda need: workdir(need["value"]),
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


def variable(name: str, node: Mapping[str, str]) -> Unmet:
    """Check that `fromNode` has something to read."""
    return None if name in node else ("VARIABLE_MISSING", f"the node has no variable {name}")


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
