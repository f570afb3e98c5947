"""Engines of ours without their replica: found by the variables that we gave them, and by who is above them."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import holders
from .mark import INJECTED
from .processes import above, environment_of, parent_and_start
from .supervisor import GRACE_S

GUARDS = (b"fleetctl-supervisor", b"default_worker.py")
WORKER = b"ray::"
SHOWN = 200


def mark_of(pid: int) -> Optional[Tuple[str, ...]]:
    """Return the values of our variables; None for a process that lacks any of them, or that is another user's."""
    found = environment_of(pid)
    values = [found.get(name.encode()) for name in INJECTED]
    return tuple(os.fsdecode(value) for value in values if value is not None) if None not in values else None


def find_orphans() -> List[Dict[str, Any]]:
    """Return the processes that have our mark and neither a guard of ours nor a worker of Ray above them.

    An engine in a container has no guard above its processes; so none counts whose mark a guarded process has, too,
    and none that lives in another PID namespace.
    """
    marks = {pid: mark for pid, mark in ((pid, mark_of(pid)) for pid in holders.neighbours()) if mark}
    guarded = {pid for pid in marks if is_guarded(pid)}
    served = {marks[pid] for pid in guarded}
    return [{"pid": pid, "began": parent_and_start(pid)[1], "command": command_line(pid), "model": mark[0],
             "replicaId": mark[1]}
            for pid, mark in sorted(marks.items()) if pid not in guarded and mark not in served]


def is_guarded(pid: int) -> bool:
    """Return whether a guard of ours, or a worker of Ray, is above a process."""
    return any(words[0].startswith(WORKER) or any(word.endswith(GUARDS) for word in words)
               for words in map(_words, above(pid)))


def _words(pid: int) -> List[bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
            return cmdline.read().split(b"\0")
    except OSError:
        return [b""]


def command_line(pid: int) -> str:
    """Return the first two words of a command line: a secret may be among the others, and our log has many readers."""
    return os.fsdecode(b" ".join(_words(pid)[:2]).strip())[:SHOWN]


def end_orphans(agreed: List[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """End those of the `agreed` processes that still are orphans; returns for each whether it is gone.

    A process is known by its number and its start: another one may have the number by now.
    """
    wanted = {(one["pid"], one["began"]) for one in agreed}
    found = [(one["pid"], one["began"]) for one in find_orphans() if (one["pid"], one["began"]) in wanted]
    left = _signalled(found, signal.SIGTERM)
    left = _signalled(left, signal.SIGKILL)
    why = dict.fromkeys(filter(_is_there, wanted.difference(found)), "it is no orphan any more")
    why.update(dict.fromkeys(left, "it does not end"))
    return [{**one, "done": (one["pid"], one["began"]) not in why, "message": why.get((one["pid"], one["began"]), "")}
            for one in agreed]


def _signalled(processes: List[Tuple[int, int]], number: int) -> List[Tuple[int, int]]:
    """Send a signal to the processes and return those that are there after GRACE_S."""
    for pid, began in processes:
        _signal(pid, began, number)
    deadline = time.monotonic() + GRACE_S
    left = processes
    while left and time.monotonic() < deadline:
        left = list(filter(_is_there, left))
        time.sleep(0.05)
    return left


def _is_there(process: Tuple[int, int]) -> bool:
    """Return whether a process, by its number and start, still runs: one that has ended has no environment."""
    pid, began = process
    return parent_and_start(pid)[1] == began and mark_of(pid) is not None


def _signal(pid: int, began: int, number: int) -> None:
    """Send a signal to this process and to no later one of its number."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if parent_and_start(pid)[1] == began:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return
    finally:
        os.close(handle)
