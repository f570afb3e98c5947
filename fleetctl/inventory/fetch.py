"""One HTTP request in its own thread, with a deadline for its answer: the caller can always stop waiting.

Socket timeouts do not bound name lookups, connecting to several addresses, or headers that arrive byte by byte.
The body arrives in small parts through a short queue. It is unpacked here, because it may grow while it is unpacked.

Each answer also tells the time of its address, which is the time of the cluster.

`Route` is the way to an address: directly or through a proxy, and whether others can read what is sent on it.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from fleetctl.agent.weights.proxy import Proxy, is_listed, is_loopback, proxy_for
from fleetctl.errors import InventoryError
from fleetctl.inventory.access import tls_context

if TYPE_CHECKING:
    import httpx

PART_BYTES = 64 << 10
PARTS_AHEAD = 8
CHECK_S = 0.2
"""The time between two checks: must the wait be reported, is the answer still wanted?"""
_GZIP_OR_ZLIB = 47
STEP_S = 2.0
"""The time in an answer has whole seconds, and the answer was under way: it may be this much behind a former one."""
CREDIBLE_YEARS = range(2000, 2200)

Open = Callable[[], AbstractContextManager["httpx.Response"]]
PLAIN_HTTP_VARIABLE = "FLEETCTL_PLAIN_HTTP"
WITHOUT_PROXY = "to reach it without the proxy, add its host or its network to NO_PROXY"
Client = TypeVar("Client")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one request. Bytes are counted unpacked; seconds include every try.

    `stream_*` are for a large answer, of which only some entries are kept; `entry_bytes` is for one entry. `silent_s` =
    the limit for an address that has never answered; `waiting_s` = the wait is reported after this time.
    """

    answer_bytes: int = 256 << 20
    total_s: float = 120.0
    stream_bytes: int = 2 << 30
    stream_s: float = 600.0
    entry_bytes: int = 16 << 20
    silent_s: float = 20.0
    waiting_s: float = 3.0


class Overdue(Exception):  # not an error yet: the client turns it into one
    """A request took longer than `seconds`. `stage` = how far it got; `silent` = its address has never answered."""

    def __init__(self, seconds: float, stage: str, *, silent: bool) -> None:
        super().__init__(f"{seconds:g} s")
        self.seconds = seconds
        self.stage = stage
        self.silent = silent


def sent_at(headers: Mapping[str, str]) -> float | None:
    """Return when an answer was sent, in seconds since the epoch, by the clock of the dashboard or a proxy before it.

    None = it does not say so credibly, or it comes from a cache. The time has whole seconds.
    """
    try:
        at = parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=timezone.utc)
    is_new = headers.get("age", "0").strip() == "0"
    return at.timestamp() if is_new and at.year in CREDIBLE_YEARS else None


@dataclass(slots=True)
class Contact:
    """The state of an address: whether it has ever answered, its time, and whether the wait for it was reported.

    `interrupts` = how many times the user has interrupted the program. Python raises only in the main thread; a higher
    count makes the other threads give up.
    """

    on_waiting: Callable[[], None]
    interrupts: Callable[[], int]
    answered: bool = False
    reported: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    ahead_s: float | None = None
    """Its time, in seconds since the epoch, less that of this process's monotonic clock; None = not known."""

    def hear(self, headers: Mapping[str, str]) -> None:
        """Note the answer of the address, with the time that it tells."""
        self.answered = True
        if (at := sent_at(headers)) is not None:
            with self.lock:
                ahead_s = at - time.monotonic()
                if self.ahead_s is None or not ahead_s <= self.ahead_s <= ahead_s + STEP_S:
                    self.ahead_s = ahead_s

    def report(self) -> None:
        """Report the wait, once for all concurrent requests."""
        with self.lock:
            first, self.reported = not self.reported, True
        if first:
            self.on_waiting()


class Deadline:
    """The deadline of one request, all its tries together."""

    def __init__(self, contact: Contact, bounds: Bounds, total_s: float) -> None:
        self._contact = contact
        self._bounds = bounds
        self._total_s = total_s
        self._begun = time.monotonic()
        self._stage = "connecting"
        self._interrupts = contact.interrupts()

    def trace(self, event: str, _: Mapping[str, Any]) -> None:
        """Note how far a try has got: connecting, tls or sent. httpcore calls this."""
        if event.startswith("connection."):
            self._stage = "tls" if event == "connection.start_tls.started" else "connecting"
        elif event.startswith("http"):
            self._stage = "sent"

    @contextmanager
    def answer(self, send: Open) -> Iterator[tuple[httpx.Response, Iterator[bytes]]]:
        """Send a request and yield its status and headers, and its body in parts. Raises Overdue."""
        fetch = Fetch(send)
        try:
            head = self._next_part(fetch)
            self._contact.hear(head.headers)
            yield head, iter(lambda: self._next_part(fetch), None)
            self._contact.reported &= self._elapsed_s() >= self._bounds.waiting_s  # fast again: report the next wait
        finally:
            fetch.abandon()

    def _next_part(self, fetch: Fetch) -> Any:  # noqa: ANN401  the first is an answer, the others are bytes
        while True:
            elapsed_s = self._elapsed_s()
            limit_s = self._total_s if self._contact.answered else min(self._bounds.silent_s, self._total_s)
            if elapsed_s >= limit_s:
                raise Overdue(limit_s, self._stage, silent=not self._contact.answered)
            if self._contact.interrupts() != self._interrupts:
                raise KeyboardInterrupt
            if elapsed_s >= self._bounds.waiting_s:
                self._contact.report()
            with suppress(queue.Empty):
                return fetch.next_part(min(limit_s - elapsed_s, CHECK_S))

    def left_s(self) -> float:
        """Return the seconds until the deadline."""
        return self._total_s - self._elapsed_s()

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begun


class Fetch:
    """A request in progress. Its parts: first the answer without its body, then the body's bytes, then None."""

    def __init__(self, send: Open) -> None:
        self._parts: queue.Queue[httpx.Response | bytes | BaseException | None] = queue.Queue(PARTS_AHEAD)
        self._abandoned = threading.Event()
        threading.Thread(target=self._run, args=(send,), name="request", daemon=True).start()

    def next_part(self, timeout_s: float) -> httpx.Response | bytes | None:
        """Return the next part; raises the request's exception, or queue.Empty when no part arrived in time."""
        part = self._parts.get(timeout=timeout_s)
        if isinstance(part, BaseException):
            raise part
        return part

    def abandon(self) -> None:
        """Abandon the request: the thread ends as soon as it notices."""
        self._abandoned.set()

    def _run(self, send: Open) -> None:
        try:
            with send() as answer:
                still_wanted = self._hand_over(answer)
                for part in unpacked(answer) if still_wanted else ():
                    if not self._hand_over(part):
                        return
            self._hand_over(None)
        except BaseException as error:  # noqa: BLE001  next_part raises it for the caller
            self._hand_over(error)

    def _hand_over(self, part: httpx.Response | bytes | BaseException | None) -> bool:
        while not self._abandoned.is_set():
            try:
                self._parts.put(part, timeout=CHECK_S)
            except queue.Full:
                continue
            return True
        return False


def unpacked(answer: httpx.Response) -> Iterator[bytes]:
    """Yield the body in parts of bounded size; raises httpx.DecodingError for an encoding that was not requested."""
    import httpx

    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):  # several encodings would multiply the size
        raise httpx.DecodingError("its content encoding was not requested")
    if encoding == "identity":
        yield from answer.iter_raw(PART_BYTES)
        return
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        for packed in answer.iter_raw(PART_BYTES):
            yield from _unpack(unpacker, packed)
    except zlib.error:
        raise httpx.DecodingError("it is labeled gzip but is not valid gzip") from None
    if not unpacker.eof:
        raise httpx.DecodingError("its gzip data is truncated")


def _unpack(unpacker: zlib._Decompress, packed: bytes) -> Iterator[bytes]:
    while True:
        part = unpacker.decompress(packed, PART_BYTES)
        packed = unpacker.unconsumed_tail
        if part:
            yield part
        if not packed and len(part) < PART_BYTES:
            return


class Route:
    """The way to `url`. `proxy` = the proxy that requests go through, if any; `via` = its mention in a message."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.proxy: Proxy | None = proxy_for(url)
        self.via = f" through {self.proxy}" if self.proxy else ""

    def open(self, make: Callable[..., Client], certificate: tuple[Path, Path] | None = None) -> Client:
        """Return an HTTP client for this way, made by `make`, which is httpx's class with the other settings.

        Raises InventoryError for an unusable proxy or certificate.
        """
        import httpx

        # loading the certificates takes time that plain HTTP can save
        verify = tls_context(certificate) if self.url.startswith("https") else False
        try:
            return make(verify=verify, trust_env=False, proxy=self.proxy.url if self.proxy else None)
        except (ValueError, ImportError, httpx.InvalidURL):
            if self.proxy is None:
                raise
            raise InventoryError(f"{self.proxy.variable} is not a usable proxy address",
                                 hint="allowed: http://host:port; NO_PROXY lists hosts and networks to reach directly"
                                 ) from None


def is_readable_by_others(url: str, expected: str) -> bool:
    """Return whether a secret sent to `url` crosses a network unencrypted; `expected` = hosts, where this is intended.

    Own names and addresses of this machine cross none, except through a proxy. Nothing is looked up.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:  # not a URL: the request fails with a better message
        return False
    near = is_loopback(host) or (_is_own(host) and proxy_for(url) is None)
    return parts.scheme == "http" and not (near or is_listed(host, port, expected))


def _is_own(host: str) -> bool:
    """Return whether a host is this machine's name or one of its addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = socket.gethostname().lower()
        return host.lower() in (name, name.partition(".")[0])
    if address.is_unspecified:  # of no machine, although it can be bound
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))  # only a machine's own addresses can be bound
    except OSError:
        return False
    return True
