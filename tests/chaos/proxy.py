"""A proxy in front of the dashboard that spoils the next responses on request."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HELD_S, SLOW_S, LATE_S = 8.0, 3.0, 2.0
LOGIN_PAGE = b"<html><body>Please log in</body></html>"


class SpoilingHandler(BaseHTTPRequestHandler):
    """Forwards to the server's `upstream`; each fault queued in `faults` spoils one response."""

    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.reads += self.path.startswith("/api/v0/nodes")
        try:
            fault = self.server.faults.popleft()
            self.server.used.append(fault)
        except IndexError:
            fault = "none"
        try:
            FAULTS[fault](self, body)
        except OSError:  # the client has gone, or there is no dashboard
            self.close_connection = True

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        return

    def forward(self, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the dashboard's response."""
        at = urlsplit(self.server.upstream)
        connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items()
                       if name.lower() not in ("host", "accept-encoding")}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            found = answer.status, answer.read()
            self.server.answered(self.command, self.path)
            return found
        finally:
            connection.close()

    def send(self, status: int, body: bytes, claim: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if claim is None else claim))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def pass_on(self, body: bytes) -> None:
        self.send(*self.forward(body))

    def hang_up(self) -> None:
        """Close the connection with a reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def spoil_half(self, body: bytes, *, whole_length: bool) -> None:
        status, answer = self.forward(body)
        self.send(status, answer[:len(answer) // 2], len(answer) if whole_length else None)
        self.close_connection = True

    def slow(self, body: bytes) -> None:
        time.sleep(SLOW_S)
        self.pass_on(body)

    def lose_answer(self, body: bytes) -> None:
        self.forward(body)
        self.hang_up()

    def arrive_late(self, body: bytes) -> None:
        """Respond 504 immediately, and forward the request later all the same."""
        self.send(504, b"gateway timeout")
        time.sleep(LATE_S)
        self.forward(body)

    def hold(self, _: bytes) -> None:
        time.sleep(HELD_S)
        self.hang_up()

    def send_too_much(self, _: bytes) -> None:
        self.send(200, b"", 300 << 20)
        for _part in range(300):
            self.wfile.write(b" " * (1 << 20))


FAULTS: dict[str, Callable[[SpoilingHandler, bytes], None]] = {
    "none": SpoilingHandler.pass_on,
    "slow": SpoilingHandler.slow,
    "lost answer": SpoilingHandler.lose_answer,
    "late arrival": SpoilingHandler.arrive_late,
    "cut": lambda one, body: one.spoil_half(body, whole_length=True),
    "truncated": lambda one, body: one.spoil_half(body, whole_length=False),
    "500": lambda one, _: one.send(500, b'{"result": false, "msg": "no"}'),
    "reset": lambda one, _: one.hang_up(),
    "login page": lambda one, _: one.send(200, LOGIN_PAGE),
    "redirect": lambda one, _: one.send(302, b"", Location="https://login.example/"),
    "hang": SpoilingHandler.hold,
    "deep": lambda one, _: one.send(200, b"[" * 100_000),
    "huge": SpoilingHandler.send_too_much,
}


class Proxy(ThreadingHTTPServer):
    """Listens on a free port until it is closed.

    `used` = the faults that hit a request; `reads` = how many times the nodes were read; `answered` gets the method
    and path of each request that the dashboard has answered.
    """

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), SpoilingHandler)
        self.upstream = upstream
        self.faults: deque[str] = deque()
        self.used: list[str] = []
        self.reads = 0
        self.answered: Callable[[str, str], object] = lambda *_: None
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def handle_error(self, *_: object) -> None:
        return

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()
