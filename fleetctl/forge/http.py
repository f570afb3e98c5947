"""HTTP to a forge's API: retries, rate limits, and errors a person can act on.

The token is only ever in a request header: never in a message, never sent to another host (redirects are not followed).
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fleetctl.documents.quantity import format_bytes
from fleetctl.errors import ForgeError, InventoryError
from fleetctl.inventory.fetch import WITHOUT_PROXY, Route
from fleetctl.version import __version__

if TYPE_CHECKING:
    import httpx

    from fleetctl.inventory.answer import Answer
    from fleetctl.inventory.fetch import Open

RETRY_DELAYS_S = (1.0, 3.0, 9.0)
"""Waits before the second, third and fourth try, unless the forge asks for another wait."""

LONGEST_WAIT_S = 90.0
"""The longest wait before one retry."""

NOT_THE_API = "is this the address of the API?"
TIMEOUT_S = 30.0
"""The longest time without a byte."""
TRY_S = 120.0
"""The longest time for one try, from the lookup of the name to the last byte of the answer."""
ANSWER_BYTES = 64 << 20
"""The longest answer, uncompressed. A page of 100 comments of the largest size is smaller."""


class ForgeClient:
    """Requests to the API below `base_url`. `sleep` waits between tries, each of which takes at most `try_s`.

    Raises ForgeError for a header value, such as a token, that HTTP cannot carry.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], *,
                 sleep: Callable[[float], None] = time.sleep, try_s: float = TRY_S) -> None:
        import httpx

        self.base_url = base_url.rstrip("/")
        self._sleep, self._try_s = sleep, try_s
        sendable = {name: _header_value(name, value) for name, value in headers.items()}
        own = {"User-Agent": f"fleetctl/{__version__}", "Accept-Encoding": "gzip"}
        self.route = Route(self.base_url)
        try:
            self._http = self.route.open(partial(httpx.Client, headers={**own, **sendable}, timeout=TIMEOUT_S))
        except InventoryError as error:
            raise ForgeError(error.message, hint=error.hint) from None

    def __enter__(self) -> ForgeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def send(self, method: str, path: str, *, params: Mapping[str, str | int] | None = None,
             body: object = None, creates: bool = False) -> Answer:
        """Send one request, retry it if that is safe and likely to help, and return the answer, whose status is 2xx.

        A request that `creates` something is retried only if it certainly had no effect: a 5xx raises at once.
        Raises ForgeError with the status, or with status None if there was no answer.
        """
        import httpx

        from fleetctl.inventory.fetch import Overdue

        for delay in (*RETRY_DELAYS_S, None):
            wait: float | None
            try:
                answer = self._answer(lambda: self._http.stream(method, self.base_url + path, params=params, json=body))
            except Overdue as overdue:
                raise ForgeError(f"{self.base_url}{self.route.via} did not answer in full within {overdue.seconds:g} s",
                                 hint=NOT_THE_API) from None
            except (httpx.RequestError, httpx.InvalidURL, UnicodeError) as error:  # UnicodeError: not a host name
                not_sent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
                may_retry = not_sent or (isinstance(error, httpx.TransportError) and not creates)
                if delay is None or not may_retry:
                    raise self._unreachable(error) from None
                wait = delay
            else:
                wait = _retry_delay(answer, delay, creates=creates)
                if wait is None:
                    return _checked(method, path, answer)
            self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _answer(self, send: Open) -> Answer:
        from fleetctl.inventory.answer import full_answer
        from fleetctl.inventory.fetch import Bounds, Contact, Deadline

        contact = Contact(on_waiting=lambda: None, interrupts=lambda: 0)
        body = bytearray()
        with Deadline(contact, Bounds(silent_s=self._try_s), self._try_s).answer(send) as (head, parts):
            for part in parts:
                body += part
                if len(body) > ANSWER_BYTES:
                    raise ForgeError(f"{head.url.path} answered with more than {format_bytes(ANSWER_BYTES)}"
                                     f"{self.route.via}",
                                     hint=NOT_THE_API, status=head.status_code)
            return full_answer(head, bytes(body), self.route.via)

    def _unreachable(self, error: Exception) -> ForgeError:
        import httpx

        # a LocalProtocolError quotes the request, whose header holds the token
        reason = "" if isinstance(error, httpx.LocalProtocolError) else str(error)
        return ForgeError(f"cannot reach {self.base_url}{self.route.via}: {reason or type(error).__name__}",
                          hint=WITHOUT_PROXY if self.route.proxy else
                          "is this the address of the API, and can this job reach it?")


def json_object(answer: Answer) -> dict[str, Any]:
    """Return the JSON object of an answer; raises ForgeError for anything else, such as a proxy's error page."""
    found = _json(answer)
    if not isinstance(found, dict):
        raise _not_the_api(answer)
    return found


def json_objects(answer: Answer) -> list[dict[str, Any]]:
    """Return the list of JSON objects of an answer; raises ForgeError for anything else."""
    found = _json(answer)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise _not_the_api(answer)
    return found


def is_rate_limited(answer: httpx.Response) -> bool:
    """Return whether the forge asks to wait. GitHub also uses 403 for this, which otherwise means "not allowed"."""
    if answer.status_code != 403:
        return answer.status_code == 429
    return ("retry-after" in answer.headers or answer.headers.get("x-ratelimit-remaining") == "0"
            or "rate limit" in answer.text.lower())


def retry_after_s(answer: httpx.Response) -> float | None:
    """Return how long the forge asks to wait, by the forge's own clock; None if it does not say."""
    retry_after, reset = answer.headers.get("retry-after", ""), answer.headers.get("x-ratelimit-reset", "")
    if retry_after.isdecimal():
        return float(retry_after)
    now = _timestamp(answer.headers.get("date", ""))
    until = _timestamp(retry_after) or (float(reset) if reset.isdecimal() else None)
    return None if now is None or until is None else max(0.0, until - now)


def _header_value(name: str, value: str) -> str:
    """Return a header's value without a trailing line end, as secrets read from a file have; errors omit the value."""
    value = value.rstrip("\r\n")
    if not (value.isascii() and value.isprintable()):
        raise ForgeError(f"the token for the forge (header {name}) contains characters not allowed in a header",
                         hint="set it again, on one line, with printable ASCII characters only")
    return value


def _timestamp(date: str) -> float | None:
    """Return an HTTP date as seconds since 1970, None for any other text."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return None


def _retry_delay(answer: httpx.Response, delay: float | None, *, creates: bool) -> float | None:
    """Return how long to wait before the next try, None if this answer is final. `delay` is None after the last try."""
    if delay is None:
        return None
    if is_rate_limited(answer):
        requested = retry_after_s(answer)
        wait = delay if requested is None else requested
        return wait if wait <= LONGEST_WAIT_S else None
    return delay if answer.status_code >= 500 and not creates else None


def _checked(method: str, path: str, answer: Answer) -> Answer:
    from fleetctl.inventory.answer import error_text

    if answer.is_success:
        return answer
    status = answer.status_code
    if is_rate_limited(answer):
        requested = retry_after_s(answer)
        wait = f"; it asks to wait {requested:.0f} s" if requested is not None else ""
        raise ForgeError(f"the forge's rate limit is reached ({status} on {method} {path}{answer.via}){wait}",
                         hint="run the job again later", status=status)
    moved = " with a redirect; was the repository renamed?" if answer.has_redirect_location else ""
    raise ForgeError(f"{method} {path} answered {status}{error_text(answer)}{moved}", status=status)


def _json(answer: Answer) -> object:
    try:
        return answer.json()
    except ValueError:
        return None


def _not_the_api(answer: Answer) -> ForgeError:
    return ForgeError(f"{answer.url.path} answered {answer.status_code}{answer.via} with content that is not the API's",
                      hint=NOT_THE_API, status=answer.status_code)
