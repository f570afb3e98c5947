"""A server whose answer arrives byte by byte and never ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NEVER_S = 20.0


@contextmanager
def dripping(head: bytes) -> Iterator[tuple[int, threading.Event]]:
    """Yield its port, and an event that is set once it has given up. It sends `head` immediately."""
    over = threading.Event()

    def drip(server: socket.socket) -> None:
        with suppress(OSError), server.accept()[0] as connection:
            connection.sendall(head)
            while not over.wait(0.02):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(NEVER_S)
        giving_up = threading.Timer(NEVER_S, over.set)
        threads = [threading.Thread(target=drip, args=(server,)), giving_up]
        for thread in threads:
            thread.start()
        try:
            yield server.getsockname()[1], over
        finally:
            over.set()
            giving_up.cancel()
            for thread in threads:
                thread.join()
