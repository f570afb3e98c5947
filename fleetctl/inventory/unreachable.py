"""Why nothing usable came back: failures on the way to a cluster, as messages about the cluster. Loads httpx."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator

import httpx

from fleetctl.errors import ClusterUnreachable, InventoryError
from fleetctl.inventory.access import CERTIFICATE_VARIABLE
from fleetctl.inventory.patience import Overdue

IS_IT_THIS = "is this the dashboard's address (http://ray-head:8265), and is it reachable from here?"
IS_IT_TLS = "does it speak TLS there? The dashboard itself speaks plain http://"
OVERLOADED = "the dashboard may be overloaded; look at its log on the head node"
IN_BETWEEN = "try again; if it stays so, look at the dashboard's log and at what is between"

_NO_ROUTE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "its name is not known here ({0.strerror})"),
    (ConnectionRefusedError, "connection refused, nothing listens there"),
    (TimeoutError, "no connection came about in time; is a firewall between?"),
    (httpx.ConnectTimeout, "no connection came about in time; is a firewall between?"),
    (httpx.ProxyError, "the proxy that HTTP_PROXY or HTTPS_PROXY names refused ({0})"),
    (httpx.LocalProtocolError, "the request itself cannot be sent"),  # its own words quote a header, perhaps the token
)
_STUCK = {
    "connecting": "no connection came about",
    "tls": "it took the connection and did not finish the TLS handshake",
    "sent": "it took the connection and never answered",
}


def why_overdue(base_url: str, path: str, overdue: Overdue) -> InventoryError:
    """Return the error for a request whose time is over."""
    if not overdue.silent:
        return ClusterUnreachable(f"{base_url} did not finish its answer to {path} within {overdue.seconds:g} s",
                                  hint=OVERLOADED)
    hint = IS_IT_TLS if overdue.stage == "tls" else IS_IT_THIS
    return ClusterUnreachable(f"nothing usable answers at {base_url}: {_STUCK[overdue.stage]} within "
                              f"{overdue.seconds:g} s", hint=hint)


def why_failed(base_url: str, path: str, error: Exception) -> InventoryError:
    """Return the error for a request that failed in `error`, an exception of httpx."""
    causes = list(_causes(error))
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if tls is not None:
        return _tls_failed(base_url, tls)
    if isinstance(error, httpx.DecodingError):
        return InventoryError(f"{path} was answered with what cannot be read: {error}", hint=IN_BETWEEN)
    if isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError)):
        return InventoryError(f"{path} was cut off while it was read ({type(error).__name__})", hint=IN_BETWEEN)
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return ClusterUnreachable(f"{base_url} took the connection and did not answer {path} in time", hint=OVERLOADED)
    reasons = (reason for cause in causes if (reason := _reason(cause)))
    reason = next(reasons, str(error) or type(error).__name__)
    return ClusterUnreachable(f"nothing usable answers at {base_url}: {reason}", hint=IS_IT_THIS)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(cause: BaseException) -> str | None:
    """Return what a failure to connect means; None for what only wraps another."""
    if isinstance(cause, OSError) and cause.errno in _NO_ROUTE:
        return f"no route to it ({cause.strerror})"
    return next((words.format(cause) for kind, words in _REASONS if isinstance(cause, kind)), None)


def _tls_failed(base_url: str, error: ssl.SSLError) -> InventoryError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ClusterUnreachable(
            f"nothing usable answers at {base_url}: its certificate is not trusted ({error.verify_message})",
            hint="if its certificate comes from your own authority, name that authority's file in SSL_CERT_FILE")
    reason = (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
    wants_ours = "alert" in reason and ("certificate" in reason or "handshake" in reason or "unknown ca" in reason)
    return ClusterUnreachable(
        f"nothing usable answers at {base_url}: TLS failed ({reason})",
        hint=f"does it want a client certificate? {CERTIFICATE_VARIABLE} and FLEETCTL_CLIENT_KEY name one" if wants_ours
        else IS_IT_TLS)
