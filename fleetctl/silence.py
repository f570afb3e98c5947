"""Keeps what C libraries print away from standard output, which is for results."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

STDOUT = 1


@contextmanager
def c_silenced() -> Iterator[None]:
    """Send to nowhere what C code prints: HiGHS has messages of its own, also where it is told to have none."""
    c_library = ctypes.CDLL(None)
    c_library.fflush(None)
    try:
        output = os.dup(STDOUT)
    except OSError:  # closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, STDOUT)
        yield
    finally:
        c_library.fflush(None)
        os.dup2(output, STDOUT)
        os.close(output)
        os.close(nowhere)
