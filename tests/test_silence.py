"""The output of C code is dropped while it is silenced, and only then."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pytest

from fleetctl.silence import c_silenced


def test_only_c_output_within_the_block_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    c_library = ctypes.CDLL(None)
    c_library.puts(b"before")
    with suppress(ZeroDivisionError), c_silenced():
        c_library.puts(b"meanwhile")
        raise ZeroDivisionError
    c_library.puts(b"after")
    c_library.fflush(None)
    assert capfd.readouterr().out == "before\nafter\n"
