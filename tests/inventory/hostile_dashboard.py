"""Answers of a broken or hostile dashboard: endless, highly compressed, byte by byte."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from fake_dashboard import Behaviour, FakeDashboard

BLOCK = 16 << 20


@dataclass
class Endless:
    """Sends spaces until the client hangs up, and counts them."""

    sent: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        _begin(handler)
        try:
            while self.sent < 1 << 30:
                handler.wfile.write(b" " * (64 << 10))
                self.sent += 64 << 10
        finally:
            handler.close_connection = True
            self.over.set()


def gzip_bomb(unpacked_bytes: int) -> Behaviour:
    """Answer with spaces that are compressed a thousand to one."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(b" " * BLOCK) + packer.flush(zlib.Z_FULL_FLUSH)
    head = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

    def answer(handler: BaseHTTPRequestHandler) -> None:
        _begin(handler, ("Content-Encoding", "gzip"))
        handler.wfile.write(head + block * (unpacked_bytes // BLOCK))
        handler.close_connection = True

    return answer


def drip(fake: FakeDashboard, begin: bytes) -> Behaviour:
    """Send `begin`, then single bytes at intervals, until the client hangs up or the test is over."""
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(begin)
        while not fake.released.wait(0.02):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    return answer


def in_parts(parts: Iterator[bytes]) -> Behaviour:
    """Answer with these parts, generated while they are sent."""
    def answer(handler: BaseHTTPRequestHandler) -> None:
        _begin(handler)
        for part in parts:
            handler.wfile.write(part)
        handler.close_connection = True

    return answer


def _begin(handler: BaseHTTPRequestHandler, *headers: tuple[str, str]) -> None:
    handler.send_response(200)
    handler.send_header("Connection", "close")
    for name, value in headers:
        handler.send_header(name, value)
    handler.end_headers()
