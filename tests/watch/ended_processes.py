"""Waits until all processes that hold a pipe have ended."""

from __future__ import annotations

import os
import select


def read_until_all_end(reader: int) -> bytes:
    """Read the output of the processes until all of them have ended."""
    output = b""
    while select.select([reader], [], [], 60)[0]:
        if not (more := os.read(reader, 100)):
            return output
        output += more
    raise AssertionError("a process still runs")
