"""HTTP to a forge's API: patience with its limits, and errors a person can act on.

The token goes into a header and nowhere else: into no message, and to no other host, for redirects are not followed.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fleetctl.documents.quantity import format_bytes
from fleetctl.errors import ForgeError
from fleetctl.version import __version__

if TYPE_CHECKING:
    import httpx

    from fleetctl.inventory.answer import Answer

RETRY_DELAYS_S = (1.0, 3.0, 9.0)
"""Waits before the second, third and fourth try, where the forge does not say how long."""

LONGEST_WAIT_S = 90.0
"""A job waits no longer than this for one answer."""

TIMEOUT_S = 30.0
ANSWER_BYTES = 64 << 20
"""No answer is read beyond this, counted as it is unpacked: a page of a hundred of the longest comments is smaller."""


class ForgeClient:
    """Requests to one API below `base_url`. `sleep` waits between tries.

    Raises ForgeError for a header, such as a token, that cannot be sent.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], *,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        import httpx

        self.base_url = base_url.rstrip("/")
        self._sleep = sleep
        sendable = {name: _sendable(name, value) for name, value in headers.items()}
        own = {"User-Agent": f"fleetctl/{__version__}", "Accept-Encoding": "gzip"}
        self._http = httpx.Client(headers={**own, **sendable}, timeout=TIMEOUT_S)

    def __enter__(self) -> ForgeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def send(self, method: str, path: str, *, params: Mapping[str, str | int] | None = None,
             body: object = None, creates: bool = False) -> Answer:
        """Send one request, again where that is safe and likely to help, and return the answer: its status is 2xx.

        A request that `creates` something is sent again only if it was certainly not carried out: a 5xx raises at once.
        Raises ForgeError with the status, None where no answer came.
        """
        import httpx

        for delay in (*RETRY_DELAYS_S, None):
            wait: float | None
            try:
                with self._http.stream(method, self.base_url + path, params=params, json=body) as head:
                    answer = self._read(head)
            except (httpx.RequestError, httpx.InvalidURL, UnicodeError) as error:  # the last: no name of a host
                failed_before = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
                may_help = failed_before or (isinstance(error, httpx.TransportError) and not creates)
                if delay is None or not may_help:
                    raise self._unreachable(error) from None
                wait = delay
            else:
                wait = _wait(answer, delay, creates=creates)
                if wait is None:
                    return _checked(method, path, answer)
            self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _read(self, head: httpx.Response) -> Answer:
        from fleetctl.inventory.answer import full_answer
        from fleetctl.inventory.fetch import unpacked

        body = bytearray()
        for part in unpacked(head):
            body += part
            if len(body) > ANSWER_BYTES:
                raise ForgeError(f"{head.url.path} answered with more than {format_bytes(ANSWER_BYTES)}",
                                 hint="is this the address of its API?", status=head.status_code)
        return full_answer(head, bytes(body))

    def _unreachable(self, error: Exception) -> ForgeError:
        import httpx

        # an error of our own request quotes it, and a header may be the token
        reason = "" if isinstance(error, httpx.LocalProtocolError) else str(error)
        return ForgeError(f"cannot reach {self.base_url}: {reason or type(error).__name__}",
                          hint="is the address of its API right, and is it reachable from this job?")


def json_object(answer: Answer) -> dict[str, Any]:
    """Return the JSON object of an answer; raises ForgeError for anything else, such as the page of a proxy."""
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
    """Return whether the forge asks to wait. GitHub also answers 403 for it, which otherwise means: not allowed."""
    if answer.status_code != 403:
        return answer.status_code == 429
    return ("retry-after" in answer.headers or answer.headers.get("x-ratelimit-remaining") == "0"
            or "rate limit" in answer.text.lower())


def seconds_asked(answer: httpx.Response) -> float | None:
    """Return how long the forge asks to wait; None where it does not say. Its own clock is what counts."""
    asked, reset = answer.headers.get("retry-after", ""), answer.headers.get("x-ratelimit-reset", "")
    if asked.isdecimal():
        return float(asked)
    now = _seconds(answer.headers.get("date", ""))
    then = _seconds(asked) or (float(reset) if reset.isdecimal() else None)
    return None if now is None or then is None else max(0.0, then - now)


def _sendable(name: str, value: str) -> str:
    """Return a header's value without the line end of a secret read from a file; no message holds the value."""
    value = value.rstrip("\r\n")
    if not (value.isascii() and value.isprintable()):
        raise ForgeError(f"the token for the forge, in the header {name}, holds characters no header can carry",
                         hint="set it again: one line, without blanks, of ASCII letters, digits and signs")
    return value


def _seconds(date: str) -> float | None:
    """Return an HTTP date as seconds since 1970, None for text that is not a date."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return None


def _wait(answer: httpx.Response, delay: float | None, *, creates: bool) -> float | None:
    """Return how long to wait before the next try; None = this answer is final. `delay` None = no next try."""
    if delay is None:
        return None
    if is_rate_limited(answer):
        asked = seconds_asked(answer)
        wait = delay if asked is None else asked
        return wait if wait <= LONGEST_WAIT_S else None
    return delay if answer.status_code >= 500 and not creates else None


def _checked(method: str, path: str, answer: Answer) -> Answer:
    from fleetctl.inventory.answer import error_text

    if answer.is_success:
        return answer
    status = answer.status_code
    if is_rate_limited(answer):
        asked = seconds_asked(answer)
        wait = f"; it asks to wait {asked:.0f} s" if asked is not None else ""
        raise ForgeError(f"too many requests for the forge ({status} on {method} {path}){wait}",
                         hint="run the job again later", status=status)
    moved = " and moved elsewhere; was the repository renamed?" if answer.has_redirect_location else ""
    raise ForgeError(f"{method} {path} answered {status}{error_text(answer)}{moved}", status=status)


def _json(answer: Answer) -> object:
    try:
        return answer.json()
    except ValueError:
        return None


def _not_the_api(answer: httpx.Response) -> ForgeError:
    return ForgeError(f"{answer.url.path} answered {answer.status_code}, but not as the API does",
                      hint="is this the address of its API?", status=answer.status_code)
