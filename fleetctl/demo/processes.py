"""Finds the processes of one demo cluster, and ends them by id. Linux only: it reads /proc.

A process belongs to the cluster if the cluster's mark, a random word, is in its environment, or if it descends from
such a process. A process is its number and its start time, so a process with a reused number is never hit, and no
other Ray on the machine is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MARK = "DEMO_CLUSTER_MARK"
GRACE_S = 3.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this machine; `started` is in clock ticks since boot."""

    pid: int
    started: int


def find_processes(mark: str) -> set[Process]:
    """Return all processes that belong to the cluster with this mark."""
    needle = f"{MARK}={mark}".encode()
    parents = _parents()
    marked = {process for process in parents if needle in _environment(process.pid)}
    return _with_descendants(marked, parents)


def end_processes(mark: str) -> int:
    """End every process of the cluster: asked first, killed after a few seconds. Return how many there were."""
    seen: set[Process] = set()
    deadline = time.monotonic() + GRACE_S
    while found := find_processes(mark) | (seen & _parents().keys()):
        late = time.monotonic() >= deadline
        _signal(found if late else found - seen, signal.SIGKILL if late else signal.SIGTERM)
        seen |= found
        time.sleep(POLL_S)
    return len(seen)


def _parents() -> dict[Process, int]:
    """Return every process that runs, with its parent's id; zombies have ended."""
    parents: dict[Process, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[Process(int(folder.name), int(fields[19]))] = int(fields[1])
    return parents


def _environment(pid: int) -> list[bytes]:
    """Return the variables a process was started with; none where it is not ours to read."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def _with_descendants(roots: set[Process], parents: dict[Process, int]) -> set[Process]:
    found = set(roots)
    while True:
        pids = {process.pid for process in found}
        more = {process for process, parent in parents.items() if parent in pids} - found
        if not more:
            return found
        found |= more


def _signal(processes: Iterable[Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
