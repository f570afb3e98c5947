"""Finds processes by a mark in their environment, so that a test can check that an engine leaves none."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

MARK = "LEFT_BEHIND_MARK"
Found = TypeVar("Found")

FAMILY = """\
import os, sys, time
def child(orphan):
    pid = os.fork()
    if pid == 0:
        if orphan and os.fork():
            os._exit(0)
        os.setsid()
        os.execvp("sleep", ["sleep", "1000"])
    if orphan:
        os.waitpid(pid, 0)
child(orphan=False)
child(orphan=True)
print("family complete", flush=True)
time.sleep(1000)
"""
"""An engine of three processes: itself, a child in a session of its own, and a deliberately orphaned process."""

PRINTS_ON_CUE = "while ! test -e cue; do sleep 0.02; done; echo the last words; touch printed; exec sleep 1000"
"""A shell engine that prints a line once its folder has a file `cue`, and then creates a file `printed`."""


def marked(mark: str) -> list[int]:
    """Return the living processes, without zombies, that carry `mark`."""
    needle, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if needle in (folder / "environ").read_bytes().split(b"\0") and alive(int(folder.name)):
                found.append(int(folder.name))
        except OSError:
            continue
    return sorted(found)


def alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return _stat(pid)[0] not in "ZX"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """Return the living direct children of a process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = _stat(int(folder.name))[:2]
        except OSError:
            continue
        if int(parent) == pid and state not in "ZX":
            found.append(int(folder.name))
    return sorted(found)


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def end(pid: int) -> None:
    """Kill a process, unless it has already ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def eventually(check: Callable[[], Found], what: str, timeout_s: float = 120) -> Found:
    """Return the first true result of `check`; the generous timeout only keeps a failure from hanging."""
    deadline = time.monotonic() + timeout_s
    while not (answer := check()):
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.02)
    return answer
