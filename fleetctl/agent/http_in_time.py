"""An HTTP connection to an engine whose answers have to be there in time, however slowly they come."""

from __future__ import annotations

import http.client
import socket
import time
from typing import Any


class _Until(socket.socket):
    """A socket that receives until `ends_at` (monotonic): a timeout alone begins again with each byte."""

    ends_at = 0.0

    def recv_into(self, *arguments: Any) -> int:
        """Receive what comes in the time that is left."""
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        self.settimeout(left)
        return super().recv_into(*arguments)


def connect_until(ends_at: float, host: str, port: int) -> http.client.HTTPConnection:
    """Return a connection that gives up at `ends_at` (monotonic), with the socket.timeout that is an OSError; raises
    OSError where there is none.
    """
    connection = http.client.HTTPConnection(host, port, timeout=max(0.001, ends_at - time.monotonic()))
    connection.connect()
    connection.sock = _Until(fileno=connection.sock.detach())
    connection.sock.settimeout(connection.timeout)
    connection.sock.ends_at = ends_at
    return connection
