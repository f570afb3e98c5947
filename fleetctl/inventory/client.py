"""The one place that sends HTTP: a thin client for a Ray dashboard, with errors a person can act on.

Token, headers and certificate go into requests, never into a message. The inventory is read with GETs only, so it
works through a proxy that passes only GETs. No answer takes more bytes or time than its bounds.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from fleetctl.errors import InventoryError, PathNotServed
from fleetctl.inventory.access import Access
from fleetctl.inventory.fetch import Bounds, Contact, Deadline, Open, Overdue, Route
from fleetctl.inventory.json_values import NotTheAnswer, entries_within, limit_values
from fleetctl.version import __version__

if TYPE_CHECKING:
    import httpx

    from fleetctl.inventory.answer import Answer


DEFAULT_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
RETRY_DELAYS_S = (0.2, 0.6)
"""Waits before the second and third try of a request."""
PASSING = frozenset({429, 502, 503, 504})
"""Statuses, of the dashboard or of a gateway in front of it, that another try may not meet."""

READERS = 8
"""How many requests of one kind are sent at once."""

NOT_JSON = "is this the Ray dashboard, and is a proxy truncating or rewriting its answers?"
NO_ACCESS, USUAL_BOUNDS = Access(), Bounds()

About = TypeVar("About")
Result = TypeVar("Result")
Params = Mapping[str, str | Sequence[str]]


class DashboardClient:
    """HTTP to one dashboard at `base_url`, such as http://ray-head:8265. Thread-safe.

    `timeout_s` bounds the wait for each part of an answer, `bounds` the whole answer. `on_waiting` is called once when
    the dashboard is slow. `interrupts` counts the interrupts of this process: each one ends the requests that wait in
    other threads. `sleep` waits between tries. `reads_only` = refuse every request but a GET.
    """

    def __init__(self, base_url: str, access: Access = NO_ACCESS, timeout_s: float = DEFAULT_TIMEOUT_S, *,
                 bounds: Bounds = USUAL_BOUNDS, on_waiting: Callable[[], None] = lambda: None,
                 interrupts: Callable[[], int] = lambda: 0, sleep: Callable[[float], None] = time.sleep,
                 reads_only: bool = False) -> None:
        # httpx's own command line, with progress bars and colors, is more than half of its import time
        sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
        import httpx

        self.base_url = base_url.rstrip("/")
        self._access = access
        self._bounds = bounds
        self._sleep = sleep
        self._reads_only = reads_only
        self._until = inf
        self._contact = Contact(on_waiting, interrupts)
        self._route = Route(self.base_url)
        # Ray refuses changes from a browser's User-Agent, and hides environments from it
        headers = {"User-Agent": f"fleetctl/{__version__}", "Accept": "application/json", "Accept-Encoding": "gzip",
                   **access.all_headers()}
        timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        self._http = self._route.open(partial(httpx.Client, headers=headers, timeout=timeout), access.certificate)

    def without_access(self) -> DashboardClient:
        """Return a client for the same dashboard that sends no token, header or certificate, and retries at once."""
        return DashboardClient(self.base_url, bounds=self._bounds, interrupts=self._contact.interrupts,
                               sleep=lambda _: None, reads_only=self._reads_only)

    def within(self, seconds: float) -> DashboardClient:
        """Return a client with the same connections whose requests all end `seconds` from now."""
        limited = copy(self)
        limited._until = time.monotonic() + seconds
        return limited

    def cluster_time(self) -> float | None:
        """Return the cluster's time now, in seconds since the epoch, by its newest answers; None = none told it."""
        ahead_s = self._contact.ahead_s
        return None if ahead_s is None else time.monotonic() + ahead_s

    def __enter__(self) -> DashboardClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(self, method: str, path: str, *, params: Mapping[str, str] | None = None, json: object = None,
                content: bytes | None = None, headers: Mapping[str, str] | None = None,
                last_bytes: int | None = None) -> Answer:
        """Send one request and return the answer, whose status may be any but 401, 403 or a redirect.

        `last_bytes` = keep only the end of a longer body.
        Raises ClusterUnreachable when the dashboard cannot be reached, ClusterRefused on 401, 403 and a redirect,
        InventoryError for an answer beyond the bounds. Within its time a GET is tried again when the connection failed,
        and after an answer that was cut short or has a PASSING status; another request only if nothing was sent.
        """
        deadline = Deadline(self._contact, self._bounds, self._at_most(self._bounds.total_s))
        sent = {"params": params, "json": json, "content": content, "headers": headers}
        send = self._sender(deadline, method, path, sent)

        def attempt() -> Answer:
            with deadline.answer(send) as (head, parts):
                return self._full_answer(path, head, parts if last_bytes is None else _end_of(parts, last_bytes))

        with self._errors_explained(path):
            answer = self._with_retries(
                method, attempt, deadline, lambda answer: method == "GET" and answer.status_code in PASSING)
        self._require_accepted(path, answer)
        return answer

    def get(self, path: str, params: Mapping[str, str] | None = None, *, last_bytes: int | None = None) -> Answer:
        """Send one GET; see `request`."""
        return self.request("GET", path, params=params, last_bytes=last_bytes)

    def get_json(self, path: str, params: Mapping[str, str] | None = None) -> object:
        """Return the JSON at `path`; raises InventoryError for any status but 200 and for a body that is not JSON."""
        for delay in (*RETRY_DELAYS_S, inf):
            answer = self.get(path, params)
            self._require_ok(path, answer)
            try:
                return answer.json()
            except ValueError:
                if self._until - time.monotonic() <= delay:
                    break
            self._sleep(delay)
        raise InventoryError(f"{path} answered 200{answer.via}, but not with complete JSON "
                             f"({len(answer.content)} bytes)",
                             hint=NOT_JSON)

    def read_entries(
        self, path: str, within: Sequence[str], params: Params, read: Callable[[str, object], Result], *,
        opening: str = "[", large: bool = False,
    ) -> tuple[list[Result], Mapping[str, Any]]:
        """Return the result of `read` for each key and value at the keys `within`, and the other values on the path.

        `opening` is "[" for a list, whose keys are "", or "{" for an object. Entries are read as they arrive, so memory
        does not depend on what `read` drops. `large` = use the bounds of streams and no limit on the number of values.
        Raises as `get_json` does.
        """
        bounds = self._bounds
        total_s, limit = (bounds.stream_s, bounds.stream_bytes) if large else (bounds.total_s, bounds.answer_bytes)
        deadline = Deadline(self._contact, bounds, self._at_most(total_s))
        send = self._sender(deadline, "GET", path, {"params": params})

        def attempt() -> tuple[list[Result], Mapping[str, Any]]:
            siblings: dict[str, Any] = {}
            with deadline.answer(send) as (head, parts):
                if head.status_code != 200:
                    self._require_ok(path, self._full_answer(path, head, parts))
                limited = self._limited(path, parts, limit)
                entries = entries_within(limited if large else limit_values(limited), within, opening,
                                         bounds.entry_bytes, siblings)
                with _json_errors_explained(path, self._route.via):
                    return [read(key, value) for key, value in entries], siblings

        with self._errors_explained(path):
            return self._with_retries("GET", attempt, deadline)

    def _at_most(self, total_s: float) -> float:
        return min(total_s, max(0.0, round(self._until - time.monotonic(), 1)))  # messages have it, too

    def _sender(self, deadline: Deadline, method: str, path: str, sent: Mapping[str, Any]) -> Open:
        if self._reads_only and method != "GET":
            raise InventoryError(f"this command only reads the cluster, so it does not send {method} {path}")
        return partial(self._http.stream, method, self.base_url + path, extensions={"trace": deadline.trace}, **sent)

    def _with_retries(self, method: str, attempt: Callable[[], Result], deadline: Deadline,
                      may_pass: Callable[[Result], bool] = lambda _: False) -> Result:
        """Return the result of an attempt, or of a later one if this may help; the last that time allows counts."""
        import httpx

        again: tuple[type[Exception], ...] = (httpx.ConnectError,)  # nothing was sent
        if method == "GET":
            again = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout, httpx.DecodingError,
                     InventoryError)
        for delay in RETRY_DELAYS_S:
            try:
                result = attempt()
                if not may_pass(result) or deadline.left_s() <= delay:
                    return result
            except again as error:
                if deadline.left_s() <= delay or (isinstance(error, InventoryError) and not error.may_pass):
                    raise
            self._sleep(delay)
        return attempt()

    @contextmanager
    def _errors_explained(self, path: str) -> Iterator[None]:
        """Turn a transport error into a message about the cluster."""
        import httpx

        try:
            yield
        except (Overdue, httpx.TransportError, httpx.InvalidURL, httpx.DecodingError) as error:
            from fleetctl.inventory.answer import why_failed

            raise why_failed(self.base_url, path, error, self._route.via) from error

    def _full_answer(self, path: str, head: httpx.Response, parts: Iterator[bytes]) -> Answer:
        from fleetctl.inventory.answer import full_answer

        body = b"".join(self._limited(path, parts, self._bounds.answer_bytes))
        return full_answer(head, body, self._route.via)

    def _limited(self, path: str, parts: Iterator[bytes], limit: int) -> Iterator[bytes]:
        size = 0
        for part in parts:
            size += len(part)
            if size > limit:
                raise InventoryError(f"{path} answered with more than {limit >> 20} MiB{self._route.via}; "
                                     "the rest is not read",
                                     hint="is this the Ray dashboard?")
            yield part

    def _require_accepted(self, path: str, answer: Answer) -> None:
        from fleetctl.inventory.answer import raise_if_refused

        raise_if_refused(self.base_url, path, answer, self._access)

    def _require_ok(self, path: str, answer: Answer) -> None:
        from fleetctl.inventory.answer import error_text

        self._require_accepted(path, answer)
        if answer.status_code == 404:
            raise PathNotServed(
                f"{self.base_url}{path} does not exist (404{answer.via})",
                hint="is this the Ray dashboard? It needs `ray[default]` on the head node, and any proxy in front of "
                     "it must pass this path")
        if answer.status_code != 200:
            failed = InventoryError(f"{path} answered {answer.status_code}{error_text(answer)}")
            failed.may_pass = answer.status_code in PASSING
            raise failed


def _end_of(parts: Iterator[bytes], limit: int) -> Iterator[bytes]:
    """Return the last parts: at least `limit` bytes, if there are that many."""
    kept, size = deque[bytes](), 0
    for part in parts:
        kept.append(part)
        size += len(part)
        while size - len(kept[0]) >= limit:
            size -= len(kept.popleft())
    return iter(kept)


@contextmanager
def _json_errors_explained(path: str, via: str) -> Iterator[None]:
    """Turn a parse error into a message about the answer."""
    try:
        yield
    except NotTheAnswer as error:
        raise InventoryError(f"{path}{via} {error}") from None
    except ValueError as error:
        cut = InventoryError(f"{path} answered 200{via}, but not with complete JSON: {error}", hint=NOT_JSON)
        cut.may_pass = True
        raise cut from None


def ask_all(ask: Callable[[About], Result], about: Iterable[About], at_once: int = READERS) -> list[Result]:
    """Return the result of `ask` for each item, in order; raises the first item's exception."""
    with ThreadPoolExecutor(at_once, thread_name_prefix="ask") as pool:
        return list(pool.map(ask, about))
