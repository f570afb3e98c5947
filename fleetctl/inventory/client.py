"""The one place that sends HTTP: a thin client for a Ray dashboard, with errors a person can act on.

The token goes into a header and nowhere else, never into a message. Reading the inventory uses `get` and `get_json`
only, so it works through a proxy that lets nothing but GETs pass.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from fleetctl.errors import ClusterRefused, ClusterUnreachable, InventoryError
from fleetctl.version import __version__

if TYPE_CHECKING:
    import httpx

DEFAULT_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
RETRY_DELAYS_S = (0.2, 0.6)
"""Waits before the second and third try of a GET whose connection failed."""

TOKEN_SOURCES = "RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH names, or ~/.ray/auth_token"  # noqa: S105
QUOTED_BODY = 200


class DashboardClient:
    """HTTP to one dashboard at `base_url`, such as http://ray-head:8265. Safe to use from several threads.

    `timeout_s` bounds the wait for each part of an answer. `sleep` is what waits between tries.
    """

    def __init__(self, base_url: str, token: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S, *,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        import httpx

        self.base_url = base_url.rstrip("/")
        self.has_token = token is not None
        self._sleep = sleep
        self._http = httpx.Client(
            headers=_headers(token),
            timeout=httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
            verify=self.base_url.startswith("https"),  # loading the certificates takes time plain HTTP need not spend
        )

    def __enter__(self) -> DashboardClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(self, method: str, path: str, *, params: Mapping[str, str] | None = None, json: object = None,
                content: bytes | None = None, headers: Mapping[str, str] | None = None,
                timeout_s: float | None = None) -> httpx.Response:
        """Send one request and return the answer, whatever its status but 401, 403 and redirects.

        Raises ClusterUnreachable when nothing usable answers and ClusterRefused on 401 and 403. Only GETs are tried
        again, and only when the connection failed.
        """
        import httpx

        extra: dict[str, Any] = {} if timeout_s is None else {"timeout": timeout_s}
        delays = RETRY_DELAYS_S if method == "GET" else ()
        for delay in (*delays, None):
            try:
                answer = self._http.request(method, self.base_url + path, params=params, json=json, content=content,
                                            headers=headers, **extra)
            except (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout) as error:
                if delay is None:
                    self._explain_transport(path, error)
                self._sleep(delay)
            except (httpx.TransportError, httpx.InvalidURL, httpx.DecodingError) as error:
                self._explain_transport(path, error)
            else:
                return self._checked(path, answer)
        raise AssertionError("the last try returns or raises")

    def get(self, path: str, params: Mapping[str, str] | None = None) -> httpx.Response:
        """Send one GET; see `request`."""
        return self.request("GET", path, params=params)

    def get_json(self, path: str, params: Mapping[str, str] | None = None) -> object:
        """Return the JSON at `path`; raises InventoryError for any status but 200 and for a body that is not JSON."""
        answer = self.get(path, params)
        if answer.status_code == 404:
            raise InventoryError(
                f"{self.base_url}{path} does not exist (404)",
                hint="is this the Ray dashboard? It needs `ray[default]` on the head node, and a proxy in front of it "
                     "must pass this path",
            )
        if answer.status_code != 200:
            raise InventoryError(f"{path} answered {answer.status_code}{_said(answer)}")
        try:
            return json.loads(answer.content)
        except ValueError:
            raise InventoryError(
                f"{path} answered 200, but not with whole JSON ({len(answer.content)} bytes)",
                hint="is this the Ray dashboard, and is nothing between that cuts off or rewrites what it says?",
            ) from None

    def _checked(self, path: str, answer: httpx.Response) -> httpx.Response:
        if answer.status_code == 401:
            had = "did not accept the way the token was sent" if self.has_token else "wants a token, and there is none"
            raise ClusterRefused(f"{self.base_url} {had} (401 on {path})",
                                 hint=f"put the cluster's token in {TOKEN_SOURCES}")
        if answer.status_code == 403:
            had = "refused the token: it is the wrong one" if self.has_token else "refused the request"
            raise ClusterRefused(
                f"{self.base_url} {had} (403 on {path})",
                hint=f"the token comes from {TOKEN_SOURCES}, the first that is set; a proxy in front of the dashboard "
                     "can refuse a path or a method, too",
            )
        if answer.has_redirect_location:
            target = answer.url.join(answer.headers["location"]).host
            raise ClusterRefused(f"{self.base_url} redirects {path} to {target} ({answer.status_code})",
                                 hint="is a login page in front of it? Use an address that answers without one")
        return answer

    def _explain_transport(self, path: str, error: Exception) -> NoReturn:
        """Turn a failure of httpx into a message about the cluster."""
        import httpx

        if isinstance(error, (httpx.RemoteProtocolError, httpx.DecodingError, httpx.ReadError)):
            raise InventoryError(f"{path} was cut off while it was read ({type(error).__name__})",
                                 hint="try again; if it stays so, look at the dashboard's log and at what is between"
                                 ) from error
        if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
            raise ClusterUnreachable(f"{self.base_url} did not answer {path} in time",
                                     hint="the dashboard may be overloaded; look at its log on the head node"
                                     ) from error
        raise ClusterUnreachable(f"nothing usable answers at {self.base_url}: {_cause(error)}",
                                 hint=_connection_hint(error)) from error


def _headers(token: str | None) -> dict[str, str]:
    """Own User-Agent: Ray refuses changes from what looks like a browser, and hides environments from it."""
    headers = {"User-Agent": f"fleetctl/{__version__}", "Accept": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _cause(error: Exception) -> str:
    """Say why a connection failed, in the words of the operating system where there are any."""
    return str(error) or type(error).__name__


def _connection_hint(error: Exception) -> str:
    if "CERTIFICATE" in str(error):
        return "if its certificate comes from your own authority, name that authority's file in SSL_CERT_FILE"
    if "SSL" in str(error):
        return "does it speak TLS there? The dashboard itself speaks plain http://"
    return "is this the dashboard's address (http://ray-head:8265), and is it reachable from here?"


def _said(answer: httpx.Response) -> str:
    """Quote the first line of what an error answer says, if it says something."""
    try:
        body = json.loads(answer.content)
        text = str(body.get("msg") or "") if isinstance(body, dict) else ""
    except ValueError:
        text = answer.text if "html" not in answer.headers.get("content-type", "") else ""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f": {first[:QUOTED_BODY]}" if first.isprintable() and first else ""
