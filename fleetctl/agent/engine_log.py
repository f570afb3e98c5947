"""An engine's log as its actor sees it: our own lines in it, and the last output of this life of the engine."""

from __future__ import annotations

import os
import re

from .mark import utc_now
from .supervisor import Stamps, open_log

OURS = "fleetctl: "
BANNER = OURS + "starting "
LAST_OUTPUT, LAST_OUTPUT_BYTES = "; last output: ", 2_000
LINE_BYTES = 1_000
"""More than the line takes that begins a life."""
SEARCHED_BYTES = 256 << 10
"""How far back to look for the error that ended the engine: its other processes write a lot at the end."""
WITH_STAMPS = 4
"""A log takes about this many bytes for a byte of short lines."""
_STAMP = re.compile(rb"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z#\d+ ", re.MULTILINE)


class EngineLog:
    """The log at `path`; the guards write the engine's output to it, and begin a new one when it is large."""

    def __init__(self, path: str) -> None:
        self.path = path

    def say(self, text: str) -> None:
        """Add a line of ours. A full disk is no reason to fail."""
        try:
            log = open_log(self.path)
        except OSError:
            return
        try:
            stamps = Stamps(log)
            os.write(log, stamps.put(f"{chr(10) if stamps.within else ''}{OURS}{text}\n".encode()))
        except OSError:
            return
        finally:
            os.close(log)

    def begin(self, who: str) -> None:
        """Add the line that begins a life of the engine."""
        self.say(f"{BANNER[len(OURS):]}{who} at {utc_now()}")

    def end(self, reason: str) -> None:
        """Add the line that ends a life of the engine, or a try to start it; `fleetctl status` reads it.

        It is without the last output, which is in the log.
        """
        self.say(f"ended at {utc_now()}: {reason.partition(LAST_OUTPUT)[0]}")

    def end_of_this_life(self, limit: int) -> str:
        """Return the last `limit` bytes, or less, of what the engine wrote since its begin."""
        read = WITH_STAMPS * limit + LINE_BYTES
        end = _tail(self.path, read)
        written = _STAMP.sub(b"", end)
        if len(written) < limit and not _begins(written):
            written = _STAMP.sub(b"", _tail(self.path + ".1", read) + end)
        return written[_begins(written):][-limit:].decode(errors="replace").strip()

    def last_output(self) -> str:
        """Return the end of what the engine wrote in this life, short enough for a message."""
        return self.end_of_this_life(LAST_OUTPUT_BYTES)

    def says_address_in_use(self) -> bool:
        """Return whether the engine complained in this life that it could not bind an address."""
        text = self.end_of_this_life(SEARCHED_BYTES).lower()
        return "address already in use" in text or "eaddrinuse" in text


def _tail(path: str, limit: int) -> bytes:
    try:
        with open(path, "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - limit))
            return log.read(limit)
    except OSError:
        return b""


def _begins(written: bytes) -> int:
    """Return where this life begins in `written`: after our last line on it; 0 where that is not among it."""
    at = (b"\n" + written).rfind(b"\n" + BANNER.encode())
    return written.find(b"\n", at) + 1 if at >= 0 else 0
