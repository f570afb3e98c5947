"""Orphaned engines, whose replica is gone: found by their FLEETCTL_ variables and their parent processes."""

from __future__ import annotations

import os
import signal
import time
from typing import Collection, Iterator, List, Optional, Sequence, Tuple

from . import containers, sockets
from .mark import MARKED
from .messages import Orphan
from .processes import ancestors, environment_of, parent_and_start
from .supervisor import ALONE_S

GUARDS = (b"fleetctl-supervisor", b"default_worker.py")
WORKER = b"ray::"
SHOWN = 200
IN_CONTAINER = tuple(name.encode() for name in (*MARKED, "FLEETCTL_NAME"))
"""Each of these shows that a container has an engine of ours; the command line tool reads none of them."""


def mark_of(pid: int) -> Optional[Tuple[str, ...]]:
    """Return a process's values of the MARKED variables; None if it lacks one, or belongs to another user."""
    environ = environment_of(pid)
    values = [environ.get(name.encode()) for name in MARKED]
    return tuple(os.fsdecode(value) for value in values if value is not None) if None not in values else None


def find_orphans() -> List[Orphan]:
    """Return the processes that have our mark but no ancestor that is a guard of ours or a Ray worker.

    The processes of an engine in a container that a daemon runs have no guard above them. So a process does not count
    if a guarded process, such as the daemon's client, has the same mark.
    """
    marks = {pid: mark for pid, mark in ((pid, mark_of(pid)) for pid in sockets.visible_processes()) if mark}
    guarded = {pid for pid in marks if is_guarded(pid)}
    guarded_marks = {marks[pid] for pid in guarded}
    found = [Orphan(pid, parent_and_start(pid)[1], command_line(pid), mark[0], mark[1])
             for pid, mark in sorted(marks.items()) if pid not in guarded and mark not in guarded_marks]
    return [*found, *_in_containers(guarded)]


def _in_containers(guarded: Collection[int]) -> Iterator[Orphan]:
    """Yield one process of each container with an orphan. A container may have been given only some variables."""
    engines = [environment_of(pid) for pid in guarded]
    for pid in containers.in_other_namespaces(IN_CONTAINER):
        environ = environment_of(pid)
        given = {name: environ[name] for name in IN_CONTAINER if name in environ}
        has_client = any(given.items() <= engine.items() for engine in engines)
        if given and not has_client and not is_guarded(pid):
            model, replica_id = (os.fsdecode(given.get(name, b"")) for name in IN_CONTAINER[:2])
            container = containers.container_of(pid) or "unknown"
            yield Orphan(pid, parent_and_start(pid)[1], command_line(pid), model, replica_id, container)


def is_guarded(pid: int) -> bool:
    """Return whether an ancestor of the process is a guard of ours or a Ray worker."""
    return any(words[0].startswith(WORKER) or any(word.endswith(GUARDS) for word in words)
               for words in map(_words, ancestors(pid)))


def _words(pid: int) -> List[bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
            return cmdline.read().split(b"\0")
    except OSError:
        return [b""]


def command_line(pid: int) -> str:
    """Return the first two words of a command line: the others may hold a secret, and many people can read our log."""
    return os.fsdecode(b" ".join(_words(pid)[:2]).strip())[:SHOWN]


def end_orphans(agreed: Sequence[Orphan]) -> List[str]:
    """End those of the `agreed` processes that are still orphans; returns for each why it still runs, "" = it is gone.

    A process is identified by pid and start time, because the pid may have been reused. A container is left to its
    daemon, which might start it again.
    """
    wanted = [(orphan.pid, orphan.began) for orphan in agreed]
    found = [(orphan.pid, orphan.began) for orphan in find_orphans()
             if (orphan.pid, orphan.began) in wanted and not orphan.container]
    left = _signalled(found, signal.SIGTERM)
    left = _signalled(left, signal.SIGKILL)
    why = dict.fromkeys(filter(_is_running, set(wanted).difference(found)), "it is no longer an orphan")
    why.update(dict.fromkeys(left, "it does not end"))
    return [why.get(process, "") for process in wanted]


def _signalled(processes: List[Tuple[int, int]], number: int) -> List[Tuple[int, int]]:
    """Send a signal to the processes and return those that still run after ALONE_S."""
    for pid, began in processes:
        _signal(pid, began, number)
    deadline = time.monotonic() + ALONE_S
    left = processes
    while left and time.monotonic() < deadline:
        left = list(filter(_is_running, left))
        time.sleep(0.05)
    return left


def _is_running(process: Tuple[int, int]) -> bool:
    """Return whether a process, by pid and start, still runs; a zombie has no environment and so does not."""
    pid, began = process
    return parent_and_start(pid)[1] == began and mark_of(pid) is not None


def _signal(pid: int, began: int, number: int) -> None:
    """Send a signal to this process, never to a later one with the same pid."""
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
