"""A server whose answer arrives byte by byte and never ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GIVE_UP_S = 100.0


@contextmanager
def dripping(head: bytes) -> Iterator[tuple[int, threading.Event]]:
    """Send `head`, then a byte every 20 ms. Yields the port and an event that is set when the server gives up."""
    given_up = threading.Event()

    def drip(server: socket.socket) -> None:
        with suppress(OSError), server.accept()[0] as connection:
            connection.sendall(head)
            while not given_up.wait(0.02):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(GIVE_UP_S)
        giving_up = threading.Timer(GIVE_UP_S, given_up.set)
        threads = [threading.Thread(target=drip, args=(server,)), giving_up]
        for thread in threads:
            thread.start()
        try:
            yield server.getsockname()[1], given_up
        finally:
            given_up.set()
            giving_up.cancel()
            for thread in threads:
                thread.join()
