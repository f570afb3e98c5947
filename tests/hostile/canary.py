"""The canary: an address that only a hostile change names. It records every byte that it is sent.

HTTP, git's protocol and everything else arrive at one port of loopback, TLS at another, where it asks for a client
certificate.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.inventory.authority import Authority, Pair

HOST = "127.1"
"""Loopback, in a form that fleetctl does not know as this machine: a token for it is one for a stranger."""
MOST = 1 << 16
PATIENCE_S = 0.5
ANSWER = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass
class Canary:
    """What has arrived; `pair` = a client certificate for the commands under test, `authority` = the one to trust."""

    port: int
    tls_port: int
    authority: Path
    pair: Pair
    _received: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The address in HTTP."""
        return f"http://{HOST}:{self.port}"

    @property
    def tls_url(self) -> str:
        """The address in HTTPS; its certificate is good for 127.0.0.1 alone."""
        return f"https://127.0.0.1:{self.tls_port}"

    @property
    def git_url(self) -> str:
        """The address of a git server."""
        return f"git://{HOST}:{self.port}/theirs.git"

    def taken(self) -> list[bytes]:
        """Return what has arrived since the last call, one entry per connection."""
        found, self._received = self._received, []
        return found

    def note(self, data: bytes) -> None:
        """Record what a connection brought."""
        self._received.append(data)


@contextmanager
def listening(folder: Path) -> Iterator[Canary]:
    """Listen until the end of the block; the certificates are kept in `folder`."""
    authority = Authority(folder)
    own = authority.sign("canary")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    tls.verify_mode = ssl.CERT_OPTIONAL
    tls.load_cert_chain(own.certificate, own.key)
    plain, secure = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    canary = Canary(plain.getsockname()[1], secure.getsockname()[1], authority.certificate, authority.sign("client"))
    threads = [threading.Thread(target=_serve, args=(canary, server, context), daemon=True)
               for server, context in ((plain, None), (secure, tls))]
    for thread in threads:
        thread.start()
    try:
        yield canary
    finally:
        for server in (plain, secure):
            server.shutdown(socket.SHUT_RDWR)
            server.close()
        for thread in threads:
            thread.join()


def _serve(canary: Canary, server: socket.socket, context: ssl.SSLContext | None) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(canary, client, context), daemon=True).start()


def _answer(canary: Canary, client: socket.socket, context: ssl.SSLContext | None) -> None:
    data = b""
    client.settimeout(PATIENCE_S)
    try:
        if context is not None:
            client = context.wrap_socket(client, server_side=True)
            if client.getpeercert():  # type: ignore[attr-defined]
                data = b"a client certificate\n"
        while len(data) < MOST and b"\r\n\r\n" not in data and (more := client.recv(4096)):
            data += more
        client.sendall(ANSWER)
    except OSError:
        pass
    finally:
        canary.note(data)
        with suppress(OSError):
            client.close()
