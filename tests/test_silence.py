"""What C libraries print is dropped while they are silenced, and only then."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pytest

from fleetctl.silence import c_silenced


def test_what_c_prints_is_dropped_meanwhile_and_nothing_else_is(capfd: pytest.CaptureFixture[str]) -> None:
    c_library = ctypes.CDLL(None)
    c_library.puts(b"before")
    with suppress(ZeroDivisionError), c_silenced():
        c_library.puts(b"meanwhile")
        raise ZeroDivisionError
    c_library.puts(b"after")
    c_library.fflush(None)
    assert capfd.readouterr().out == "before\nafter\n"
