"""An engine's log as its actor sees it: our own lines in it, and the last output of the engine's current life."""

from __future__ import annotations

import os
import re

from .mark import utc_now
from .own_files import open_own
from .supervisor import Stamps, open_log

LINE_PREFIX = "fleetctl: "
BANNER = LINE_PREFIX + "starting "
LAST_OUTPUT, LAST_OUTPUT_BYTES = "; last output: ", 2_000
LINE_BYTES = 1_000
"""More than the length of the line that begins a life."""
SEARCHED_BYTES = 256 << 10
"""How far back to search for the error that ended the engine: its other processes write a lot at the end."""
WITH_STAMPS = 4
"""With stamps, short lines take about this many times their size in the log."""
_STAMP = re.compile(rb"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z#\d+ ", re.MULTILINE)


class EngineLog:
    """The log at `path`. The guards write the engine's output to it, and rotate it when it is large."""

    def __init__(self, path: str) -> None:
        self.path = path

    def say(self, text: str) -> None:
        """Add a line of ours. Never fails, even on a full disk."""
        try:
            log = open_log(self.path)
        except OSError:
            return
        try:
            stamps = Stamps(log)
            os.write(log, stamps.put(f"{chr(10) if stamps.mid_line else ''}{LINE_PREFIX}{text}\n".encode()))
        except OSError:
            return
        finally:
            os.close(log)

    def begin(self, member: str) -> None:
        """Add the line that begins a life of the engine."""
        self.say(f"{BANNER[len(LINE_PREFIX):]}{member} at {utc_now()}")

    def end(self, reason: str) -> None:
        """Add the line that ends a life of the engine, or an attempt to start it; `fleetctl status` reads it.

        The line omits the last output, which the log has anyway.
        """
        self.say(f"ended at {utc_now()}: {reason.partition(LAST_OUTPUT)[0]}")

    def end_of_this_life(self, limit: int) -> str:
        """Return at most the last `limit` bytes of the engine's output since it started."""
        read = WITH_STAMPS * limit + LINE_BYTES
        end = _tail(self.path, read)
        written = _STAMP.sub(b"", end)
        if len(written) < limit and not _begins(written):
            written = _STAMP.sub(b"", _tail(self.path + ".1", read) + end)
        return written[_begins(written):][-limit:].decode(errors="replace").strip()

    def last_output(self) -> str:
        """Return the end of the engine's output in this life, short enough for a message."""
        return self.end_of_this_life(LAST_OUTPUT_BYTES)

    def says_address_in_use(self) -> bool:
        """Return whether the engine reported in this life that an address is in use."""
        text = self.end_of_this_life(SEARCHED_BYTES).lower()
        return "address already in use" in text or "eaddrinuse" in text


def _tail(path: str, limit: int) -> bytes:
    try:
        with open(open_own(path, os.O_RDONLY), "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - limit))
            return log.read(limit)
    except OSError:
        return b""


def _begins(written: bytes) -> int:
    """Return the offset in `written` at which this life begins, after our banner; 0 if the banner is not in it."""
    at = (b"\n" + written).rfind(b"\n" + BANNER.encode())
    return written.find(b"\n", at) + 1 if at >= 0 else 0
