"""The one place that sends HTTP: a thin client for a Ray dashboard, with errors a person can act on.

Token, headers and certificate go into requests and nowhere else, never into a message. Reading the inventory uses
GETs only, so it works through a proxy that lets nothing else pass. No answer takes more bytes or time than its bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fleetctl.errors import InventoryError
from fleetctl.inventory.access import Access, tls_context
from fleetctl.inventory.bounds import Bounds
from fleetctl.inventory.json_entries import NotTheAnswer, entries_within, few_values, items_within
from fleetctl.inventory.patience import Contact, Overdue, Patience
from fleetctl.inventory.refused import raise_if_refused
from fleetctl.version import __version__

if TYPE_CHECKING:
    import httpx

    from fleetctl.inventory.answer import Answer
    from fleetctl.inventory.fetch import Open

DEFAULT_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
RETRY_DELAYS_S = (0.2, 0.6)
"""Waits before the second and third try of a GET whose connection failed."""

NOT_JSON = "is this the Ray dashboard, and is nothing between that cuts off or rewrites what it says?"
NO_ACCESS, USUAL_BOUNDS = Access(), Bounds()

Result = TypeVar("Result")


class DashboardClient:
    """HTTP to one dashboard at `base_url`, such as http://ray-head:8265. Safe to use from several threads.

    `timeout_s` bounds the wait for each part of an answer, `bounds` the whole of it. `on_waiting` is called, once, when
    the dashboard takes long; it may be replaced at any time. `interrupts` counts the interrupts of this process: each
    ends the requests that wait in other threads. `sleep` is what waits between tries.
    """

    def __init__(self, base_url: str, access: Access = NO_ACCESS, timeout_s: float = DEFAULT_TIMEOUT_S, *,
                 bounds: Bounds = USUAL_BOUNDS, on_waiting: Callable[[], None] = lambda: None,
                 interrupts: Callable[[], int] = lambda: 0, sleep: Callable[[float], None] = time.sleep) -> None:
        import httpx

        self.base_url = base_url.rstrip("/")
        self.on_waiting = on_waiting
        self._access = access
        self._bounds = bounds
        self._sleep = sleep
        self._contact = Contact(self._tell_waiting, interrupts)
        is_tls = self.base_url.startswith("https")  # loading the certificates takes time plain HTTP need not spend
        verify = tls_context(access.certificate) if is_tls else False
        try:
            self._http = httpx.Client(headers=_headers(access), verify=verify, timeout=httpx.Timeout(
                timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s)))
        except (ValueError, ImportError, httpx.InvalidURL):  # it makes its proxies at once
            raise InventoryError("HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names no proxy that can be used",
                                 hint="allowed: http://host:port; NO_PROXY lists hosts to reach without") from None

    def __enter__(self) -> DashboardClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _tell_waiting(self) -> None:
        self.on_waiting()

    def request(self, method: str, path: str, *, params: Mapping[str, str] | None = None, json: object = None,
                content: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send one request and return the answer, whatever its status but 401, 403 and redirects.

        Raises ClusterUnreachable when nothing usable answers, ClusterRefused on 401 and 403, InventoryError for an
        answer beyond the bounds. Only GETs are tried again, and only when the connection failed.
        """
        patience = Patience(self._contact, self._bounds, self._bounds.total_s)
        sent = {"params": params, "json": json, "content": content, "headers": headers}
        send = self._sender(patience, method, path, sent)

        def attempt() -> Answer:
            with patience.answer(send) as (head, parts):
                return self._whole(path, head, parts)

        with self._explained(path):
            answer = self._tried(method, attempt)
        raise_if_refused(self.base_url, path, answer, self._access)
        return answer

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Answer:
        """Send one GET; see `request`."""
        return self.request("GET", path, params=params)

    def get_json(self, path: str, params: Mapping[str, str] | None = None) -> object:
        """Return the JSON at `path`; raises InventoryError for any status but 200 and for a body that is not JSON."""
        answer = self.get(path, params)
        self._require_ok(path, answer)
        try:
            return answer.json()
        except ValueError:
            raise InventoryError(f"{path} answered 200, but not with whole JSON ({len(answer.content)} bytes)",
                                 hint=NOT_JSON) from None

    def stream_entries(self, path: str, within: Sequence[str], params: Mapping[str, str] | None = None
                       ) -> Iterator[tuple[str, object]]:
        """Yield the entries of the one object at the keys `within` of a large JSON answer, while it comes in.

        Memory does not depend on the size of the answer; the bounds of streams hold, and that of one entry. Raises as
        `get_json` does, at any point: only an iteration that ends by itself has seen all entries.
        """
        patience = Patience(self._contact, self._bounds, self._bounds.stream_s)
        send = self._sender(patience, "GET", path, {"params": params})
        with ExitStack() as stack, self._explained(path):
            head, parts = self._tried("GET", lambda: stack.enter_context(patience.answer(send)))
            self._require_stream(path, head, parts)
            with _json_of(path):
                yield from entries_within(self._limited(path, parts, self._bounds.stream_bytes), within,
                                          self._bounds.entry_bytes)

    def read_items(self, path: str, within: Sequence[str], params: Mapping[str, str], read: Callable[[object], Result]
                   ) -> tuple[list[Result], Mapping[str, Any]]:
        """Return what `read` makes of each item of the list at the keys `within`, and what stands beside the list.

        Items are read while they come in. The bounds of a whole answer hold, and that of one entry. Raises as
        `get_json` does.
        """
        patience = Patience(self._contact, self._bounds, self._bounds.total_s)
        send = self._sender(patience, "GET", path, {"params": params})

        def attempt() -> tuple[list[Result], Mapping[str, Any]]:
            beside: dict[str, Any] = {}
            with patience.answer(send) as (head, parts):
                self._require_stream(path, head, parts)
                kept = few_values(self._limited(path, parts, self._bounds.answer_bytes))
                with _json_of(path):
                    return list(map(read, items_within(kept, within, self._bounds.entry_bytes, beside))), beside

        with self._explained(path):
            return self._tried("GET", attempt)

    def _require_stream(self, path: str, head: httpx.Response, parts: Iterator[bytes]) -> None:
        if head.status_code != 200:
            answer = self._whole(path, head, parts)
            raise_if_refused(self.base_url, path, answer, self._access)
            self._require_ok(path, answer)

    def _sender(self, patience: Patience, method: str, path: str, sent: Mapping[str, Any]) -> Open:
        return partial(self._http.stream, method, self.base_url + path, extensions={"trace": patience.trace}, **sent)

    def _tried(self, method: str, attempt: Callable[[], Result]) -> Result:
        """Return what an attempt returns; where a connection failed, GETs are tried again."""
        import httpx

        for delay in RETRY_DELAYS_S if method == "GET" else ():
            try:
                return attempt()
            except (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout):
                self._sleep(delay)
        return attempt()

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        """Turn a failure on the way into a message about the cluster."""
        import httpx

        try:
            yield
        except Overdue as overdue:
            from fleetctl.inventory.unreachable import why_overdue

            raise why_overdue(self.base_url, path, overdue) from None
        except (httpx.TransportError, httpx.InvalidURL, httpx.DecodingError) as error:
            from fleetctl.inventory.unreachable import why_failed

            raise why_failed(self.base_url, path, error) from error

    def _whole(self, path: str, head: httpx.Response, parts: Iterator[bytes]) -> Answer:
        from fleetctl.inventory.answer import whole

        return whole(head, b"".join(self._limited(path, parts, self._bounds.answer_bytes)))

    def _limited(self, path: str, parts: Iterator[bytes], limit: int) -> Iterator[bytes]:
        size = 0
        for part in parts:
            size += len(part)
            if size > limit:
                raise InventoryError(f"{path} answered with more than {limit >> 20} MiB, which is read no further",
                                     hint="is this the Ray dashboard?")
            yield part

    def _require_ok(self, path: str, answer: Answer) -> None:
        from fleetctl.inventory.answer import said

        if answer.status_code == 404:
            raise InventoryError(
                f"{self.base_url}{path} does not exist (404)",
                hint="is this the Ray dashboard? It needs `ray[default]` on the head node, and a proxy in front of it "
                     "must pass this path",
            )
        if answer.status_code != 200:
            raise InventoryError(f"{path} answered {answer.status_code}{said(answer)}")


@contextmanager
def _json_of(path: str) -> Iterator[None]:
    """Turn what is wrong with a document into a message about the answer."""
    try:
        yield
    except NotTheAnswer as error:
        raise InventoryError(f"{path} {error}") from None
    except ValueError as error:
        raise InventoryError(f"{path} answered 200, but not with whole JSON: {error}", hint=NOT_JSON) from None


def _headers(access: Access) -> dict[str, str]:
    """Own User-Agent: Ray refuses changes from what looks like a browser, and hides environments from it."""
    return {"User-Agent": f"fleetctl/{__version__}", "Accept": "application/json", "Accept-Encoding": "gzip",
            **access.all_headers()}
