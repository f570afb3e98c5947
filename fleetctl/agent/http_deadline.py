"""An HTTP connection to an engine with a deadline for the whole answer, however slowly it arrives."""

from __future__ import annotations

import http.client
import socket
import time
from typing import Any


class _DeadlineSocket(socket.socket):
    """A socket that receives until `deadline` (monotonic): a plain timeout restarts with each byte."""

    deadline = 0.0

    def recv_into(self, *arguments: Any) -> int:
        """Receive within the remaining time; raises socket.timeout."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        self.settimeout(left)
        return super().recv_into(*arguments)


def connect_until(deadline: float, host: str, port: int) -> http.client.HTTPConnection:
    """Return a connection that raises socket.timeout, an OSError, at `deadline` (monotonic).

    Raises OSError if it cannot connect.
    """
    connection = http.client.HTTPConnection(host, port, timeout=max(0.001, deadline - time.monotonic()))
    connection.connect()
    connection.sock = _DeadlineSocket(fileno=connection.sock.detach())
    connection.sock.settimeout(connection.timeout)
    connection.sock.deadline = deadline
    return connection
