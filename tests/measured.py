"""Runs a command and prints in one line what it took: minutes by the clock, and of the processors.

Processes whose parents end before them count, too: they become children of this one.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def main(words: list[str]) -> int:
    """Run the command `words` to its end; return its exit code."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    began, ended, status = time.monotonic(), 0, 0
    program = os.spawnvp(os.P_NOWAIT, words[0], words)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command gets it, too, and ends by itself
    while ended != program:
        ended, status = os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"took {(time.monotonic() - began) / 60:.1f} minutes by the clock, "
          f"{(used.ru_utime + used.ru_stime) / 60:.1f} of the processors", flush=True)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
