"""The listening side of a source: few connections, few threads, and a time limit for all that a peer sends or reads.

One thread accepts connections and reads requests. Only a request that its session accepts, complete and with a valid
token, gets one of the few threads that answer. So whatever is on the network, a replica spends MOST_CONNECTIONS files
on it and no thread. Knows HTTP and nothing about weights.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import io
import ipaddress
import itertools
import os
import re
import select
import selectors
import socket
import threading
import time
from collections import deque
from http import HTTPStatus
from typing import Any, Callable, Deque, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

from .protocol import host_of
from .table import LEASE_S

MOST_CONNECTIONS = 64
"""Connections at a time, and so files. An actor needs some 100 files itself, and the usual limit is 1,024."""
MOST_FROM_ONE = MOST_CONNECTIONS // 4
"""How many of them one address may hold without a valid token, so that it cannot close those of all others."""
MOST_ADMITTED = MOST_CONNECTIONS - MOST_FROM_ONE
"""How many of them may have shown a valid token: a newcomer always gets one of the others."""
MOST_ANSWERED = 16
"""Requests answered at a time, each in a thread: MOST_FETCHES of both sources during a reload, and short ones."""
REQUEST_S = 10.0
"""Seconds for a complete request, from its first byte; for the first ones, from the connection to a valid token."""
MOST_REQUEST_BYTES = 80 << 10
"""A header of 64 KiB, the most that http.client and http.server read in one line, and more than any view needs."""
SLICE, SLICE_S = 1 << 20, LEASE_S
"""A peer reads this many bytes in this many seconds, or the connection is closed."""
BACKLOG = 512
POLL_S = 0.5
NO_FILE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Errors of a process or a system that has too little left: its other parts need that more."""
NICE = 10
RETRY = {HTTPStatus.ACCEPTED, HTTPStatus.TOO_MANY_REQUESTS}
"""Answers that ask to try again after a second."""


class Request(NamedTuple):
    """One complete request."""

    method: str
    path: str
    headers: http.client.HTTPMessage
    body: bytes


class ShortAnswer(NamedTuple):
    """A short answer. The connection stays open only after 200 and 206."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class Session:
    """What a source knows of one connection. Subclasses say what is accepted and answered."""

    def accept(self, request: Request) -> Optional[ShortAnswer]:
        """Return an answer that needs no valid token; None = the token is valid, and `answer` will be called.

        Called in the listener's thread, so it must not wait.
        """
        raise NotImplementedError

    def answer(self, request: Request) -> None:
        """Answer a request through the connection. Called in a thread that may wait."""
        raise NotImplementedError

    def end(self) -> None:
        """The connection, which has had a valid token, is closed."""


class Connection:
    """One connection. Belongs to the listener's thread, or to the thread that answers its request."""

    def __init__(self, connected: socket.socket, address: Tuple[Any, ...]) -> None:
        self.socket = connected
        self.network = _network(host_of(address))
        """The peer's address. In IPv6 one machine has a whole network of 64 bits, so that counts as one."""
        self.session = Session()
        self.incoming = _Incoming()
        self.deadline = 0.0
        self.admitted = False
        self.closing = False

    def send(self, answer: ShortAnswer) -> None:
        """Send an answer; raises OSError, also if the peer reads too slowly."""
        self.send_head(answer.status, len(answer.body), answer.headers)
        for at in range(0, len(answer.body), SLICE):
            self._send_slice(memoryview(answer.body)[at:at + SLICE])

    def send_head(self, status: int, size: int, headers: Mapping[str, str]) -> None:
        """Send the head of an answer with a body of `size` bytes."""
        self.closing = self.closing or status not in {200, 206}
        self._send_slice(memoryview(_head(status, size, headers)))

    def send_file(self, file: Any, at: int, end: int, sent: Callable[[int], bool]) -> None:
        """Send a range of a file. The kernel sends the bytes, so Python does not copy them.

        `sent` is called with the size of each slice, and returns whether to go on.
        """
        while at < end:
            until, slice_end = time.monotonic() + SLICE_S, min(end, at + SLICE)
            size = slice_end - at
            while at < slice_end:
                with self._writable(until):
                    moved = os.sendfile(self.socket.fileno(), file.fileno(), at, slice_end - at)
                    if not moved:
                        raise ConnectionError("the file has become shorter")
                    at += moved
            if not sent(size):
                self.closing = True
                return

    def _send_slice(self, data: memoryview) -> None:
        until = time.monotonic() + SLICE_S
        while data:
            with self._writable(until):
                data = data[self.socket.send(data):]

    @contextlib.contextmanager
    def _writable(self, until: float) -> Iterator[None]:
        """Wait after a write that would have blocked; raises TimeoutError once it is `until`."""
        try:
            yield
        except BlockingIOError:
            waiting = select.poll()
            waiting.register(self.socket, select.POLLOUT)
            if not waiting.poll(max(0.0, until - time.monotonic()) * 1000):
                raise TimeoutError("the peer reads too slowly") from None
        if time.monotonic() >= until:
            raise TimeoutError("the peer reads too slowly")


class Listener:
    """Serves one address of the node at the first free port of `ports`; `begin` returns the session of a connection.

    Raises OSError if none of the ports is free.
    """

    def __init__(self, address: str, ports: Sequence[int], begin: Callable[[Connection], Session]) -> None:
        self._listening = _listening(address, ports)
        self._begin = begin
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = socket.socketpair()
        for end in (self._woken, self._wake):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._paused_until: Optional[float] = None
        self._strangers: Dict[Connection, None] = {}
        """Connections without a valid token yet, the oldest first."""
        self._admitted: Dict[Connection, None] = {}
        self._lock = threading.Lock()
        self._requests: Deque[Tuple[Connection, Request]] = deque()
        """Requests with a valid token that wait for a thread."""
        self._threads = 0
        self._answered: Deque[Connection] = deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="fleetctl-weights", daemon=True)

    @property
    def address(self) -> Tuple[str, int]:
        """The address and the port that it listens on."""
        host, port = self._listening.getsockname()[:2]
        return str(host), int(port)

    def start(self) -> None:
        """Start serving, in threads that end with the process."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, and close all connections."""
        self._stopping = True
        self._wake_up()
        if self._thread.ident is not None:
            self._thread.join()
        for connection in (*self._strangers, *self._admitted):
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)  # ends the thread that sends on it
            self._close(connection)
        for opened in (self._listening, self._selector, self._woken, self._wake):
            opened.close()

    def _run(self) -> None:
        lower_priority()
        while not self._stopping:
            ready = [key for key, _ in self._selector.select(POLL_S)]
            for connection in (key.data for key in ready):
                if connection in self._strangers or connection in self._admitted:
                    with self._closed_on_error(connection):
                        self._read(connection)
            self._continue_answered()
            if any(key.fileobj is self._listening for key in ready):  # after the reads: what was sent in time counts
                self._accept()
            self._close_late()

    def _accept(self) -> None:
        """Accept some of the waiting connections: fewer than would close all those that have come just before."""
        for _ in range(MOST_FROM_ONE // 2):
            try:
                connected, address = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in NO_FILE:
                    self._pause()
                    return
                continue  # an error of that connection
            connection = Connection(connected, address)
            self._make_room(connection.network)
            self._strangers[connection] = None
            connection.deadline = time.monotonic() + REQUEST_S
            with self._closed_on_error(connection):
                connected.setblocking(False)
                # otherwise a short body waits 40 ms for the ack of its head
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.session = self._begin(connection)
                self._selector.register(connected, selectors.EVENT_READ, connection)

    def _make_room(self, network: str) -> None:
        """Close the oldest connection without a valid token if there are too many: of that network, or of all."""
        same = [stranger for stranger in self._strangers if stranger.network == network]
        if len(same) >= MOST_FROM_ONE:
            self._close(same[0])
        elif len(self._strangers) + len(self._admitted) >= MOST_CONNECTIONS:
            self._close(next(iter(self._strangers)))

    def _pause(self) -> None:
        """Accept nothing for a second, and free the files of all connections without a valid token."""
        self._selector.unregister(self._listening)
        self._paused_until = time.monotonic() + 1
        for stranger in list(self._strangers):
            self._close(stranger)

    def _close_late(self) -> None:
        now = time.monotonic()
        if self._paused_until is not None and now >= self._paused_until:
            self._paused_until = None
            self._selector.register(self._listening, selectors.EVENT_READ)
        for connection in [*self._strangers, *self._admitted]:
            if connection.deadline <= now:
                self._close(connection)

    @contextlib.contextmanager
    def _closed_on_error(self, connection: Connection) -> Iterator[None]:
        """Close a connection that fails, whatever the error: the thread serves all the others, too."""
        try:
            yield
        except Exception:
            self._close(connection)

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.socket.recv(MOST_REQUEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            connection.deadline = min(connection.deadline, time.monotonic() + REQUEST_S)
            self._take_request(connection, data)
        else:
            self._close(connection)

    def _take_request(self, connection: Connection, data: bytes = b"") -> None:
        """Answer or queue a complete request among the received bytes, if there is one."""
        try:
            request = connection.incoming.take(data)
        except (ValueError, http.client.HTTPException) as error:
            return self._answer_now(connection, ShortAnswer(400, str(error).encode(errors="replace")))
        if request is None:
            return None
        answer = connection.session.accept(request)
        if answer is None and not connection.admitted and len(self._admitted) >= MOST_ADMITTED:
            answer = ShortAnswer(429, b"too many connections")
        if answer is not None:
            return self._answer_now(connection, answer)
        self._selector.unregister(connection.socket)
        self._strangers.pop(connection, None)
        self._admitted[connection] = None
        connection.admitted, connection.deadline = True, float("inf")
        return self._start_answering(connection, request)

    def _answer_now(self, connection: Connection, answer: ShortAnswer) -> None:
        """Send an answer so short that it fits into the socket's buffer."""
        data = _head(answer.status, len(answer.body), answer.headers) + answer.body
        try:
            complete = connection.socket.send(data) == len(data)
        except OSError:
            complete = False
        if not complete or answer.status != 200:
            self._close(connection)
        else:
            self._take_request(connection)

    def _close(self, connection: Connection) -> None:
        with contextlib.suppress(KeyError, ValueError):  # not registered while it is answered
            self._selector.unregister(connection.socket)
        self._strangers.pop(connection, None)
        self._admitted.pop(connection, None)
        connection.socket.close()
        if connection.admitted:
            connection.session.end()

    def _start_answering(self, connection: Connection, request: Request) -> None:
        with self._lock:
            self._requests.append((connection, request))
            if self._threads >= MOST_ANSWERED:
                return
            self._threads += 1
        try:
            threading.Thread(target=self._answer_queued, name="fleetctl-send", daemon=True).start()
        except RuntimeError:  # the process or its container may have no further thread
            with self._lock:
                self._threads -= 1
                left = [] if self._threads else [waiting for waiting, _ in self._requests]
                self._requests = self._requests if self._threads else deque()
            for waiting in left:
                self._close(waiting)

    def _answer_queued(self) -> None:
        """Answer requests until none waits. Errors are those of broken connections: the peer handles them."""
        lower_priority()
        while True:
            with self._lock:
                if not self._requests:
                    self._threads -= 1
                    return
                connection, request = self._requests.popleft()
            try:
                connection.session.answer(request)
            except Exception:
                connection.closing = True
            self._answered.append(connection)
            self._wake_up()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):
            self._wake.send(b"!")

    def _continue_answered(self) -> None:
        """Wait for the next request of connections whose request was answered."""
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        while self._answered:
            connection = self._answered.popleft()
            if connection.closing:
                self._close(connection)
                continue
            connection.deadline = time.monotonic() + LEASE_S
            with self._closed_on_error(connection):
                self._selector.register(connection.socket, selectors.EVENT_READ, connection)
                self._take_request(connection)


def _listening(address: str, ports: Sequence[int]) -> socket.socket:
    """Return a socket that listens at the first free port; raises OSError.

    A port with connections of a former process that are still ending is free, too, but only if no other is: an engine
    may have reserved one in the same way.
    """
    family, trouble = (socket.AF_INET6 if ":" in address else socket.AF_INET), OSError("no port")
    for reuse, port in itertools.product((0, 1), ports):
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            listening.bind((address, port))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # for the next process
            listening.listen(BACKLOG)
            listening.setblocking(False)
            return listening
        except OSError as error:
            listening.close()
            trouble = error
    raise trouble


def _network(host: str) -> str:
    return str(ipaddress.ip_network(f"{host}/64", strict=False)) if ":" in host else host


class _Incoming:
    """The bytes that a peer has sent. Each is looked at once, whatever pieces they come in."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._searched = 0
        self._head: Optional[Tuple[Request, int]] = None

    def take(self, data: bytes = b"") -> Optional[Request]:
        """Add data, and return the first complete request; None = there is more to come. Raises ValueError."""
        self._received += data
        if self._head is None:
            end = self._received.find(b"\r\n\r\n", max(0, self._searched - 3))
            self._searched = len(self._received)
            if (self._searched if end < 0 else end) > MOST_REQUEST_BYTES:
                raise ValueError("the request is too long")
            if end < 0:
                return None
            self._head = _parsed(bytes(self._received[:end + 4]))
            del self._received[:end + 4]
        request, size = self._head
        if len(self._received) < size:
            return None
        body = bytes(self._received[:size])
        del self._received[:size]
        self._searched, self._head = 0, None
        return request._replace(body=body)


def _parsed(head: bytes) -> Tuple[Request, int]:
    """Return a request without its body, and the body's size; raises ValueError or HTTPException."""
    first, _, rest = head.partition(b"\r\n")
    words = first.decode("latin-1").split(" ")
    if len(words) != 3 or words[2] != "HTTP/1.1":
        raise ValueError("not a request of HTTP/1.1")
    headers = http.client.parse_headers(io.BytesIO(rest))
    length = headers.get("Content-Length") or "0"
    if headers.get("Transfer-Encoding") or not re.fullmatch("[0-9]{1,9}", length):
        raise ValueError("not a body of known length")
    if int(length) > MOST_REQUEST_BYTES:
        raise ValueError("the request is too long")
    return Request(words[0], words[1], headers, b""), int(length)


def _head(status: int, size: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}", f"Content-Length: {size}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += ["Retry-After: 1"] if status in RETRY else []
    lines += [] if status in {200, 206} else ["Connection: close"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def lower_priority() -> None:
    """Let the calling thread run only when the engine leaves the processor idle."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
