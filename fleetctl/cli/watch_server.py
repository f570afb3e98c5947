"""The HTTP side of `fleetctl watch --listen`: a status page, /metrics for Prometheus, /healthz and /readyz, by GET.

With a secret, a POST to /push by a forge's webhook ends the rest of the watch.

Over /events (server-sent events) the browser learns that the page has changed, and loads it again.

Strangers cannot silence the server: few connections, ten seconds for a request, and only known host names. At the limit
the oldest connection without a complete request is closed for a new one, so a newcomer always gets in, and the rest of
the program keeps its files.
"""

from __future__ import annotations

import errno
import gzip
import hmac
import re
import socket
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from ipaddress import IPv6Network, ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from fleetctl.documents.base import moment_at
from fleetctl.documents.inventory import host_port
from fleetctl.errors import UsageError
from fleetctl.watch.metrics import WatchCollector
from fleetctl.watch.pushes import MAX_BODY, Outcome, Pushes
from fleetctl.watch.watcher import Watcher

if TYPE_CHECKING:
    from fleetctl.watch.page import LivePage

MAX_CONNECTIONS = 96
"""Connections at a time, each with a thread and a file. The handler limits how many it answers slowly to two thirds."""
MAX_FROM_ONE = MAX_CONNECTIONS // 4
"""How many of them one address may hold without a complete request, so that it cannot close those of all others."""
REQUEST_S = 10.0
"""Seconds for a complete request, however its bytes come in."""
MAX_REQUEST_BYTES = 32 << 10
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
            if len(same) >= MAX_FROM_ONE:
                self._end(same[0])
            elif len(self._open) >= MAX_CONNECTIONS and self._strangers:
                self._end(next(iter(self._strangers)))
            fits = self._changed.wait_for(lambda: len(self._open) < MAX_CONNECTIONS, PAUSE_S)
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
    """Handles one request. `timeout` = seconds for an answer; a stream has them for each of its parts.

    `until` = when the request must be complete, by the monotonic clock.
    """

    timeout = 10
    until = 0.0
    server: LimitedServer

    def handle(self) -> None:
        """Read the request within REQUEST_S, and answer it."""
        head, until = bytearray(), time.monotonic() + REQUEST_S
        while b"\r\n\r\n" not in head:
            self.connection.settimeout(max(0.001, until - time.monotonic()))
            data = self.connection.recv(MAX_REQUEST_BYTES)
            if not data or len(head) + len(data) > MAX_REQUEST_BYTES:
                return
            head += data
        # a request with a body is not complete yet: whoever answers it notes that
        if head.startswith(b"POST ") or self.server.has_asked(self.connection):
            self.connection.settimeout(self.timeout)
            self.rfile.close()
            self.rfile = BytesIO(head)
            self.until = until
            self.handle_one_request()


    def body(self, length: int) -> Iterator[bytes]:
        """Yield the body of a request with this length, part by part, until REQUEST_S are over or the peer stops."""
        while length > 0:
            part = self.rfile.read(length)
            if not part:
                self.connection.settimeout(max(0.001, self.until - time.monotonic()))
                part = self.connection.recv(min(length, MAX_REQUEST_BYTES))
            if not part:
                raise ConnectionError("the request ended before its body was complete")
            length -= len(part)
            yield part
        self.connection.settimeout(self.timeout)


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



Answer = tuple[HTTPStatus, str, bytes]
PUSH_PATH = "/push"
PUSHED: Mapping[Outcome, tuple[HTTPStatus, bytes]] = {
    "accepted": (HTTPStatus.ACCEPTED, b"the watch looks now\n"),
    "replayed": (HTTPStatus.OK, b"this delivery came before\n"),
    "refused": (HTTPStatus.UNAUTHORIZED, b"no signature or token that fits the secret of this watch\n"),
}
_NAME = re.compile(r"[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*\.?")
PLAIN = "text/plain; charset=utf-8"
OPEN = frozenset({"/healthz", "/readyz"})
"""Paths that need no token and no known name: probes have none."""
MAX_LISTENERS, MAX_READERS = 32, 32
"""Streams, and other long answers, at a time. A third of all connections is left for those that just came."""
UNKNOWN_NAME = b"""not served under the name %s

Use an IP address, localhost or the name of the machine, or start fleetctl watch with --listen-name NAME.
"""
COMPRESSED_FROM = 10_000
"""Answers of more bytes are compressed. The page of 1,000 nodes has two million, compressed a tenth of that."""
HEARTBEAT_S = 15.0
"""How often a stream sends a line: proxies drop a silent stream, and only a write detects that its reader is gone."""


class Served:
    """The pages of a watch. The status page is made on request, at most once per turn of the loop."""

    def __init__(self, watcher: Watcher, pushes: Pushes | None = None) -> None:
        self.watcher = watcher
        self.pushes = pushes
        self.url = ""
        self.listeners = threading.BoundedSemaphore(MAX_LISTENERS)
        self.readers = threading.BoundedSemaphore(MAX_READERS)
        self._registry = CollectorRegistry()
        self._registry.register(WatchCollector(watcher, pushes))
        self._turn = 0
        self._turned = threading.Condition()
        self._making = threading.Lock()
        self._made: tuple[int, LivePage] | None = None

    def turned(self) -> None:
        """Report a new turn of the loop: the page may have changed."""
        with self._turned:
            self._turn += 1
            self._turned.notify_all()

    def page(self) -> LivePage:
        """Return the page of this turn."""
        from fleetctl.watch.page import watch_page  # slow: everything that draws; not needed without a reader

        with self._making:
            turn = self._turn
            if self._made is None or self._made[0] != turn:
                self._made = turn, watch_page(self.watcher, self._made and self._made[1])
            return self._made[1]

    def html(self) -> bytes:
        """Return the page as HTML, made once for all requests."""
        page = self.page()
        with self._making:
            return page.html.encode()

    def events(self, have: str) -> Iterator[str]:
        """Yield events for a browser that has the page with digest `have`; ends once there is a new page."""
        while True:
            turn = self._turn
            if self.page().digest != have:
                yield "event: changed\ndata:\n\n"
                return
            yield f"event: looked\ndata: {moment_at(self.watcher.looked_at)}\n\n"
            while not self._turns_after(turn):
                yield ":\n\n"

    def _turns_after(self, turn: int) -> bool:
        """Wait up to HEARTBEAT_S for the turn after `turn`; return whether it came."""
        with self._turned:
            return self._turned.wait_for(lambda: self._turn != turn, HEARTBEAT_S)

    def answer(self, path: str) -> Answer:
        """Return the response for a path."""
        if path == "/":
            return HTTPStatus.OK, "text/html; charset=utf-8", self.html()
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self._registry)
        if path == "/healthz":
            return _probe("the loop has not turned for too long" if self.watcher.is_late else "")
        if path == "/readyz":
            known = self.watcher.good is not None and self.watcher.seen is not None
            return _probe("" if known else "no good revision yet, or the cluster was never read")
        return HTTPStatus.NOT_FOUND, PLAIN, b"not found\n"


def _probe(fault: str) -> Answer:
    status = HTTPStatus.SERVICE_UNAVAILABLE if fault else HTTPStatus.OK
    return status, PLAIN, f"{fault or 'ok'}\n".encode()


class _Server(LimitedServer):
    def __init__(self, address: tuple[str, int], served: Served, token: str | None, names: Sequence[str]) -> None:
        self.served = served
        self._token = token
        super().__init__(address, _Handler, names)

    def admits(self, authorization: str) -> bool:
        """Return whether a header carries the token, as a bearer token or as the password of basic authentication."""
        if self._token is None:
            return True
        kind, _, text = authorization.partition(" ")
        given = text.encode("latin-1")  # as http.server decodes headers
        if kind.lower() == "basic":
            try:
                given = b64decode(given, validate=True).partition(b":")[2]
            except ValueError:
                return False
        return hmac.compare_digest(given, self._token.encode())

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  as in its base
        """Do not report a client that went away, such as a probe that did not wait."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(LimitedHandler):
    server: _Server

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path in OPEN:
            self._send(self.server.served.answer(path))
        elif not self.server.knows(self.headers.get_all("Host", [])):
            self._send((HTTPStatus.MISDIRECTED_REQUEST, PLAIN, UNKNOWN_NAME % ascii(self.headers["Host"]).encode()))
        elif not self.server.admits(self.headers.get("Authorization", "")):
            self._send((HTTPStatus.UNAUTHORIZED, PLAIN, b"send the token as a bearer token or as the password\n"))
        elif path == "/events":
            self._stream(parse_qs(query).get("have", [""])[0])
        elif self.server.served.readers.acquire(blocking=False):
            try:
                self._send(self.server.served.answer(path))
            finally:
                self.server.served.readers.release()
        else:
            self._send((HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, b"too many readers\n"))

    def do_POST(self) -> None:
        pushes = self.server.served.pushes
        is_push = self.path.partition("?")[0] == PUSH_PATH
        answer = (HTTPStatus.NOT_FOUND, b"not found\n") if pushes is None or not is_push else self._pushed(pushes)
        if self.server.has_asked(self.connection):
            self._send((answer[0], PLAIN, answer[1]))

    def _pushed(self, pushes: Pushes) -> tuple[HTTPStatus, bytes]:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or len(length) > 15:
            return HTTPStatus.LENGTH_REQUIRED, b"a Content-Length is required\n"
        if int(length) > MAX_BODY:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"at most %d bytes\n" % MAX_BODY
        delivery = pushes.begin(self.headers)
        if delivery is not None:  # the body of any other request is not worth reading
            for part in self.body(int(length)):
                delivery.add(part)
        return PUSHED[pushes.take(delivery)]

    def _send(self, answer: Answer) -> None:
        status, kind, body = answer
        compressed = len(body) > COMPRESSED_FROM and "gzip" in self.headers.get("Accept-Encoding", "")
        self._begin(status, kind)
        if status is HTTPStatus.UNAUTHORIZED and self.command == "GET":
            self.send_header("WWW-Authenticate", 'Basic realm="fleetctl"')
        if compressed:
            body = gzip.compress(body, compresslevel=1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, have: str) -> None:
        served = self.server.served
        if not served.listeners.acquire(blocking=False):
            self._send((HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, b"too many open pages\n"))
            return
        try:
            self._begin(HTTPStatus.OK, "text/event-stream")
            self.end_headers()
            for event in served.events(have):
                self.wfile.write(event.encode())
        finally:
            served.listeners.release()

    def _begin(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Cache-Control", "no-store"),
                            ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY")):
            self.send_header(name, value)

    def log_message(self, *_: object) -> None:
        """Log nothing: probes come every few seconds."""


@contextmanager
def serving(watcher: Watcher, listen: str | None, token: str | None, names: Sequence[str] = (),
            pushes: Pushes | None = None) -> Iterator[Served | None]:
    """Serve while the block runs; `listen` = HOST:PORT, None = serve nothing.

    With a `token`, all paths but the probes require it. `names` = names under which the page is served, besides this
    machine's own. `pushes` = those that forges may tell of. Raises UsageError for an address or a name that cannot be
    used.
    """
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(f"--listen-name {name}: expected a host name, without scheme and port",
                             hint="such as --listen-name fleet.example.org")
        if listen is None:
            raise UsageError(f"--listen-name {name} needs --listen: without it nothing is served",
                             hint=f"such as --listen 127.0.0.1:9464 --listen-name {name}")
    if listen is None:
        yield None
        return
    host, _, port = listen.rpartition(":")
    served = Served(watcher, pushes)
    try:
        server = _Server((host.strip("[]") or "127.0.0.1", int(port)), served, token, names)
    except (OSError, ValueError, OverflowError) as error:
        raise UsageError(f"--listen {listen}: {getattr(error, 'strerror', None) or 'expected HOST:PORT'}",
                         hint="such as 127.0.0.1:9464") from None
    served.url = f"http://{host_port(host.strip('[]') or '127.0.0.1', server.server_port)}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
