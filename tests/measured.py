"""Runs a command and prints in one line what it took: minutes by the clock, and of the processors.

Processes whose parents end before them count, too: they become children of this one. Ray's raylets ignore the end of
their children, so nobody is told what those have used: it is read from /proc while they run.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
LOOK_S = 1.0
TICKS = os.sysconf("SC_CLK_TCK")


def main(words: list[str]) -> int:
    """Run the command `words` to its end; return its exit code."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    began, ended, status = time.monotonic(), 0, 0
    below_raylets: dict[tuple[int, str], float] = {}
    program = os.spawnvp(os.P_NOWAIT, words[0], words)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command gets it, too, and ends by itself
    while ended != program:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if not ended:
            below_raylets |= seconds_below_raylets()
            time.sleep(LOOK_S)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime + sum(below_raylets.values())
    print(f"took {(time.monotonic() - began) / 60:.1f} minutes by the clock, {seconds / 60:.1f} of the processors",
          flush=True)
    return os.waitstatus_to_exitcode(status)


def seconds_below_raylets() -> dict[tuple[int, str], float]:
    """Return what each process below a raylet of this run has used so far, by its pid and time of start."""
    children: dict[int, list[int]] = {}
    name, used, start = {}, {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            before, _, after = stat.read_text().rpartition(")")
        except OSError:
            continue  # it has ended
        pid, fields = int(stat.parent.name), after.split()
        children.setdefault(int(fields[1]), []).append(pid)
        name[pid], used[pid], start[pid] = before.partition("(")[2], sum(map(int, fields[11:13])) / TICKS, fields[19]
    found, todo = {}, [(os.getpid(), False)]
    while todo:
        pid, counts = todo.pop()
        if counts:
            found[pid, start[pid]] = used[pid]
        todo += [(child, counts or name.get(pid) == "raylet") for child in children.get(pid, [])]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
