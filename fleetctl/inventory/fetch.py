"""One HTTP request in a thread of its own, so that whoever waits for it can stop waiting, whatever it is stuck in.

Looking up a name, connecting to several addresses, headers that come byte by byte: no limit of a socket bounds these.
The body comes in small parts through a short queue; it is unpacked here, as what is small on the way may be huge.
"""

from __future__ import annotations

import queue
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

PART_BYTES = 64 << 10
PARTS_AHEAD = 8
_LOOK_UP_S = 0.2
_GZIP_OR_ZLIB = 47

Open = Callable[[], AbstractContextManager["httpx.Response"]]


class Fetch:
    """A request that is under way. Its parts: first the answer without its body, then the body's bytes, then None."""

    def __init__(self, send: Open) -> None:
        self._parts: queue.Queue[httpx.Response | bytes | BaseException | None] = queue.Queue(PARTS_AHEAD)
        self._left = threading.Event()
        threading.Thread(target=self._run, args=(send,), name="request", daemon=True).start()

    def next_part(self, timeout_s: float) -> httpx.Response | bytes | None:
        """Return the next part; raises what went wrong on the way, and queue.Empty when none came in time."""
        part = self._parts.get(timeout=timeout_s)
        if isinstance(part, BaseException):
            raise part
        return part

    def leave(self) -> None:
        """Ask for nothing more: the thread ends by itself as soon as it notices."""
        self._left.set()

    def _run(self, send: Open) -> None:
        try:
            with send() as answer:
                still_wanted = self._hand_over(answer)
                for part in unpacked(answer) if still_wanted else ():
                    if not self._hand_over(part):
                        return
            self._hand_over(None)
        except BaseException as error:  # noqa: BLE001  whatever it is, it is raised where it is waited for
            self._hand_over(error)

    def _hand_over(self, part: httpx.Response | bytes | BaseException | None) -> bool:
        while not self._left.is_set():
            try:
                self._parts.put(part, timeout=_LOOK_UP_S)
            except queue.Full:
                continue
            return True
        return False


def unpacked(answer: httpx.Response) -> Iterator[bytes]:
    """Yield the body in parts of bounded size; raises httpx.DecodingError for a packing that was not asked for."""
    import httpx

    packing = answer.headers.get("content-encoding", "identity").strip().lower()
    if packing not in ("identity", "gzip"):  # several at once would multiply
        raise httpx.DecodingError("it is packed in a way that was not asked for")
    if packing == "identity":
        yield from answer.iter_raw(PART_BYTES)
        return
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        for packed in answer.iter_raw(PART_BYTES):
            yield from _unpack(unpacker, packed)
    except zlib.error:
        raise httpx.DecodingError("it is not the gzip it says it is") from None
    if not unpacker.eof:
        raise httpx.DecodingError("it ends in the middle of its gzip")


def _unpack(unpacker: zlib._Decompress, packed: bytes) -> Iterator[bytes]:
    while True:
        part = unpacker.decompress(packed, PART_BYTES)
        packed = unpacker.unconsumed_tail
        if part:
            yield part
        if not packed and len(part) < PART_BYTES:
            return
