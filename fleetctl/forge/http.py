"""HTTP to a forge's API: patience with its limits, and errors a person can act on.

The token goes into a header and nowhere else: into no message, and to no other host, for redirects are not followed.
"""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ForgeError
from fleetctl.version import __version__

if TYPE_CHECKING:
    import httpx

RETRY_DELAYS_S = (1.0, 3.0, 9.0)
"""Waits before the second, third and fourth try, where the forge does not say how long."""

LONGEST_WAIT_S = 90.0
"""A job is not kept waiting for longer than this by one answer."""

TIMEOUT_S = 30.0
QUOTED_BODY = 200


class ForgeClient:
    """Requests to one API below `base_url`. `sleep` is what waits between tries.

    Raises ForgeError for a header, such as a token, that cannot be sent.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], *,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        import httpx

        self.base_url = base_url.rstrip("/")
        self._sleep = sleep
        sendable = {name: _sendable(name, value) for name, value in headers.items()}
        self._http = httpx.Client(headers={"User-Agent": f"fleetctl/{__version__}", **sendable}, timeout=TIMEOUT_S)

    def __enter__(self) -> ForgeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def send(self, method: str, path: str, *, params: Mapping[str, str | int] | None = None,
             body: object = None, creates: bool = False) -> httpx.Response:
        """Send one request, again where that is safe and likely to help, and return the answer: its status is 2xx.

        What `creates` something is sent again only if it was certainly not carried out: for it a 5xx raises at once.
        Raises ForgeError with the status, None where nothing answered.
        """
        import httpx

        for delay in (*RETRY_DELAYS_S, None):
            try:
                answer = self._http.request(method, self.base_url + path, params=params, json=body)
            except (httpx.RequestError, httpx.InvalidURL) as error:
                wait = delay if _may_help_again(error, creates=creates) else None
                if wait is None:
                    raise self._unreachable(error) from None
            else:
                wait = _wait(answer, delay, creates=creates)
                if wait is None:
                    return _checked(method, path, answer)
            self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _unreachable(self, error: Exception) -> ForgeError:
        import httpx

        # what our own request did wrong is told with a quote of it, and a header may be the token
        said = "" if isinstance(error, httpx.LocalProtocolError) else str(error)
        return ForgeError(f"nothing usable answers at {self.base_url}: {said or type(error).__name__}",
                          hint="is the address of its API right, and is it reachable from this job?")


def json_object(answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON object that was answered; raises ForgeError for anything else, such as the page of a proxy."""
    told = _json(answer)
    if not isinstance(told, dict):
        raise _not_the_api(answer)
    return told


def json_objects(answer: httpx.Response) -> list[dict[str, Any]]:
    """Return the list of JSON objects that was answered; raises ForgeError for anything else."""
    told = _json(answer)
    if not isinstance(told, list) or not all(isinstance(row, dict) for row in told):
        raise _not_the_api(answer)
    return told


def is_rate_limited(answer: httpx.Response) -> bool:
    """Tell whether the forge asks for patience. GitHub also answers 403 for it, which else means: not allowed."""
    if answer.status_code != 403:
        return answer.status_code == 429
    return ("retry-after" in answer.headers or answer.headers.get("x-ratelimit-remaining") == "0"
            or "rate limit" in answer.text.lower())


def seconds_asked(answer: httpx.Response) -> float | None:
    """Return how long the forge asks to wait; None where it does not say. Its own clock is what counts."""
    asked, reset = answer.headers.get("retry-after", ""), answer.headers.get("x-ratelimit-reset", "")
    if asked.isdigit():
        return float(asked)
    now = _seconds(answer.headers.get("date", ""))
    then = _seconds(asked) or (float(reset) if reset.isdigit() else None)
    return None if now is None or then is None else max(0.0, then - now)


def _sendable(name: str, value: str) -> str:
    """Return the value of a header without the line end that a secret read from a file has; never tells the value."""
    value = value.rstrip("\r\n")
    if not (value.isascii() and value.isprintable()):
        raise ForgeError(f"the token for the forge, in the header {name}, holds characters no header can carry",
                         hint="set it anew: one line, without blanks, of ASCII letters, digits and signs")
    return value


def _seconds(date: str) -> float | None:
    """Return an HTTP date as seconds since 1970, None for what is none."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return None


def _may_help_again(error: Exception, *, creates: bool) -> bool:
    """Tell whether the way to the forge failed, and for what `creates`, whether it failed before anything was sent."""
    import httpx

    failed_before = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
    return failed_before or (isinstance(error, httpx.TransportError) and not creates)


def _wait(answer: httpx.Response, delay: float | None, *, creates: bool) -> float | None:
    """Return how long to wait before the next try; None = this answer stands. `delay` None = there is no next try."""
    if delay is None:
        return None
    if is_rate_limited(answer):
        asked = seconds_asked(answer)
        wait = delay if asked is None else asked
        return wait if wait <= LONGEST_WAIT_S else None
    return delay if answer.status_code >= 500 and not creates else None


def _checked(method: str, path: str, answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    status = answer.status_code
    if is_rate_limited(answer):
        asked = seconds_asked(answer)
        wait = f"; it asks to wait {asked:.0f} s" if asked is not None else ""
        raise ForgeError(f"too many requests for the forge ({status} on {method} {path}){wait}",
                         hint="run the job again later", status=status)
    moved = " and moved elsewhere; was the repository renamed?" if answer.has_redirect_location else ""
    raise ForgeError(f"{method} {path} answered {status}{_said(answer)}{moved}", status=status)


def _json(answer: httpx.Response) -> object:
    """Return the answer's JSON, None where it is none."""
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError):
        return None


def _not_the_api(answer: httpx.Response) -> ForgeError:
    return ForgeError(f"{answer.url.path} answered {answer.status_code}, but not with what the API says there",
                      hint="is this the address of its API?", status=answer.status_code)


def _said(answer: httpx.Response) -> str:
    """Quote what an error answer says: GitHub has `message`, GitLab `message` or `error`, each text or more."""
    told = _json(answer)
    if not isinstance(told, dict):
        return ""
    text = str(told.get("message") or told.get("error") or "")
    return f": {text[:QUOTED_BODY]}" if text.isprintable() and text else ""
