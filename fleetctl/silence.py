"""Keeps the output of C libraries off standard output, which is for results."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

STDOUT = 1


@contextmanager
def c_silenced() -> Iterator[None]:
    """Discard what C code prints: HiGHS prints some messages even when its output is turned off."""
    c_library = ctypes.CDLL(None)
    c_library.fflush(None)
    try:
        output = os.dup(STDOUT)
    except OSError:  # closed
        yield
        return
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, STDOUT)
        yield
    finally:
        c_library.fflush(None)
        os.dup2(output, STDOUT)
        os.close(output)
        os.close(devnull)
