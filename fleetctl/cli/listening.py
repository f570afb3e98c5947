"""An HTTP server that strangers cannot silence: few connections, ten seconds for a request, and only known host names.

At the limit the oldest connection without a complete request is closed for a new one, so a newcomer always gets in, and
the rest of the program keeps its files.
"""

from __future__ import annotations

import errno
import re
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from ipaddress import IPv6Network, ip_address
from typing import Any

MOST_CONNECTIONS = 96
"""Connections at a time, each with a thread and a file. The handler limits how many it answers slowly to two thirds."""
MOST_FROM_ONE = MOST_CONNECTIONS // 4
"""How many of them one address may hold without a complete request, so that it cannot close those of all others."""
REQUEST_S = 10.0
"""Seconds for a complete request, however its bytes come in."""
MOST_REQUEST_BYTES = 32 << 10
NO_FILE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
PAUSE_S = 1.0
"""How long nothing is accepted after the process has run out of files."""
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+))(?::[0-9]*)?")


class LimitedServer(ThreadingHTTPServer):
    """Serves `handler` at `address`; `names` = host names that it is known by, besides those of this machine.

    Raises OSError if the address cannot be used.
    """

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, address: tuple[str, int], handler: type[LimitedHandler], names: Iterable[str] = ()) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._given = frozenset(_plain(name) for name in ("localhost", address[0], *names))
        self._changed = threading.Condition()
        self._open = set[socket.socket]()
        self._strangers = dict[socket.socket, str]()
        """Connections without a complete request yet, the oldest first, with the peer's address."""
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Without a free file, first free those that strangers hold: others need them more."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in NO_FILE:
                with self._changed:
                    for stranger in list(self._strangers):
                        self._end(stranger)
                time.sleep(PAUSE_S)  # the connection is still there: without a pause the loop would spin
            raise

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  as in its base
        """Handle a connection in a thread of its own, once there is room for it."""
        with self._changed:
            host = _network(client_address[0])
            same = [stranger for stranger, its_host in self._strangers.items() if its_host == host]
            if len(same) >= MOST_FROM_ONE:
                self._end(same[0])
            elif len(self._open) >= MOST_CONNECTIONS and self._strangers:
                self._end(next(iter(self._strangers)))
            fits = self._changed.wait_for(lambda: len(self._open) < MOST_CONNECTIONS, PAUSE_S)
            self._open.add(request)
            self._strangers[request] = host
        try:
            if fits:
                return super().process_request(request, client_address)
        except RuntimeError:  # no further thread: as with files
            pass
        return self.shutdown_request(request)

    def close_request(self, request: Any) -> None:  # noqa: ANN401  as in its base
        """Close a connection."""
        super().close_request(request)
        with self._changed:
            self._open.discard(request)
            self._strangers.pop(request, None)
            self._changed.notify_all()

    def has_asked(self, request: socket.socket) -> bool:
        """Note that a request is complete; return whether its connection is still open."""
        with self._changed:
            return self._strangers.pop(request, None) is not None

    def _end(self, stranger: socket.socket) -> None:
        """End a connection, which ends the thread that reads from it."""
        del self._strangers[stranger]
        with suppress(OSError):
            stranger.shutdown(socket.SHUT_RDWR)

    def knows(self, hosts: list[str]) -> bool:
        """Return whether the Host of a request is an address or a known name.

        A web page elsewhere that reads this server through a name of its own (DNS rebinding) sends that name. No Host
        at all comes from no browser.
        """
        if not hosts:
            return True
        match = _HOST.fullmatch(hosts[0].strip())
        if match is None or len(hosts) > 1:
            return False
        name = _plain(match[1] or match[2])
        return _is_address(name) or name in self._given or name in self._own

    @cached_property
    def _own(self) -> frozenset[str]:
        """The names of this machine. Not looked up before it is needed: DNS may be slow."""
        return frozenset({_plain(socket.gethostname()), _plain(socket.getfqdn())})


class LimitedHandler(BaseHTTPRequestHandler):
    """Handles one request. `timeout` = seconds for an answer; a stream has them for each of its parts."""

    timeout = 10
    server: LimitedServer

    def handle(self) -> None:
        """Read the request within REQUEST_S, and answer it."""
        head, until = bytearray(), time.monotonic() + REQUEST_S
        while b"\r\n\r\n" not in head:
            self.connection.settimeout(max(0.001, until - time.monotonic()))
            data = self.connection.recv(MOST_REQUEST_BYTES)
            if not data or len(head) + len(data) > MOST_REQUEST_BYTES:
                return
            head += data
        if self.server.has_asked(self.connection):
            self.connection.settimeout(self.timeout)
            self.rfile.close()
            self.rfile = BytesIO(head)
            self.handle_one_request()


def _plain(name: str) -> str:
    return name.lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _network(host: str) -> str:
    """Return the address of a peer; one machine has a whole network of IPv6, so that counts as one."""
    address = ip_address(host.partition("%")[0])
    if address.version == 4 or address.ipv4_mapped:
        return str(getattr(address, "ipv4_mapped", None) or address)
    return str(IPv6Network((address, 64), strict=False))
