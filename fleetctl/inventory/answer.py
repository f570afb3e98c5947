"""A complete answer of bounded size, and why a request has none: the cluster is out of reach, or refuses it.

Loads httpx: import it late.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import httpx

from fleetctl.errors import ClusterRefused, ClusterUnreachable, InventoryError
from fleetctl.inventory.access import CERTIFICATE_VARIABLE, HEADERS_VARIABLE, Access
from fleetctl.inventory.fetch import WITHOUT_PROXY, Overdue
from fleetctl.inventory.json_values import MAX_VALUES, count_values, parse_text

QUOTED = 200
_BODY_HEADERS = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class Answer(httpx.Response):
    """An httpx response with the body already unpacked, as UTF-8, and JSON parsing that raises only ValueError.

    `via` = the mention of the proxy that it came through, for messages; see `Route`.
    """

    via: str = ""

    def json(self, **_: Any) -> Any:  # noqa: ANN401  as httpx has it
        """Return the body as JSON; raises only ValueError, for a body that is not JSON or is too large."""
        return parse_json(self.content)


def full_answer(head: httpx.Response, body: bytes, via: str = "") -> Answer:
    """Return the answer with the status and headers of `head` and this body; see `Answer` for `via`."""
    headers = [(name, value) for name, value in head.headers.multi_items() if name.lower() not in _BODY_HEADERS]
    answer = Answer(head.status_code, headers=headers, content=body, request=head.request)
    answer.via = via
    answer.encoding = "utf-8"  # a charset could name any of Python's codecs, including decompressing ones
    return answer


def parse_json(body: bytes) -> object:
    """Return the value in `body`; raises ValueError for text that is not JSON, nests too deep or is too large."""
    if len(body) > MAX_VALUES and count_values(body) > MAX_VALUES:
        raise ValueError("too many values")
    return parse_text(body.decode("utf-8-sig"))


def error_text(answer: Answer) -> str:
    """Quote the first line of an error answer, as in `: no such thing`; empty if it has no usable text.

    Before it, the proxy is named. Ray's dashboard has `msg`, GitHub `message`, GitLab `message` or `error`.
    """
    try:
        body = parse_json(answer.content)
        text = next((str(body[key]) for key in ("msg", "message", "error") if body.get(key)), "") if isinstance(
            body, dict) else ""
    except ValueError:
        text = answer.text if "html" not in answer.headers.get("content-type", "") else ""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return answer.via + (f": {first[:QUOTED]}" if first.isprintable() and first else "")


WRONG_ADDRESS = "is this the dashboard's address (http://ray-head:8265), and is it reachable from here?"
NOT_TLS = "does that port speak TLS? The dashboard itself speaks plain http://"
OVERLOADED = "the dashboard may be overloaded; look at its log on the head node"
RETRY = "try again; if it fails again, check the dashboard's log and any proxy in between"
TOKEN_SOURCES = "RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH names, or ~/.ray/auth_token"  # noqa: S105

_NO_ROUTE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
_NOT_IN_TIME = "the connection timed out; is a firewall in between?"
_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "its name cannot be resolved ({0.strerror})"),
    (ConnectionRefusedError, "connection refused, nothing listens there"),
    (TimeoutError, _NOT_IN_TIME),
    (httpx.ConnectTimeout, _NOT_IN_TIME),
    (httpx.ProxyError, "the proxy refused ({0})"),
    (httpx.LocalProtocolError, "the request itself cannot be sent"),  # its text quotes a header, perhaps the token
)
_STUCK = {
    "connecting": "no connection was made",
    "tls": "it accepted the connection but did not finish the TLS handshake",
    "sent": "it accepted the connection but never answered",
}

_LOGINS = {"basic": "Basic", "digest": "Digest", "negotiate": "Negotiate", "ntlm": "NTLM"}
"""Authentication schemes of proxies; Ray's own answers name no scheme."""
_NOT_SENT = "token, headers and certificate were not sent: only a file names this address"
_NAME_ADDRESS = "if they are for this address, name it with --address URL or FLEETCTL_ADDRESS"
_INSTEAD_OF_TOKEN = "it is sent instead of the cluster's token"  # noqa: S105
_PROXY_MAY_REFUSE = "a proxy in front of the dashboard may also refuse a path or a method"


def why_failed(base_url: str, path: str, error: Exception, via: str = "") -> InventoryError:
    """Return the error for a request that failed with `error`: Overdue, or an exception of httpx.

    `via` = the mention of the proxy that it went through, if any; see `Route`.
    """
    found = _why_failed(base_url + via, path, path + via, error)
    return _with_way_around(found) if via else found


def _with_way_around(error: InventoryError) -> InventoryError:
    """Add to the hint how to avoid the proxy, which may be the cause."""
    end = "" if error.hint and error.hint.endswith("?") else "."
    error.hint = f"{error.hint}{end} T{WITHOUT_PROXY[1:]}" if error.hint else WITHOUT_PROXY
    return error


def _why_failed(base_url: str, path: str, named_path: str, error: Exception) -> InventoryError:
    if isinstance(error, Overdue):
        return _overdue(base_url, path, error)
    causes = list(_causes(error))
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if tls is not None:
        return _tls_failed(base_url, tls)
    if isinstance(error, httpx.DecodingError):
        return InventoryError(f"the answer to {named_path} cannot be read: {error}", hint=RETRY)
    if isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError)):
        return InventoryError(f"the answer to {named_path} was cut off ({type(error).__name__})", hint=RETRY)
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return ClusterUnreachable(f"{base_url} accepted the connection but did not answer {path} in time",
                                  hint=OVERLOADED)
    reasons = (reason for cause in causes if (reason := _reason(cause)))
    return _unreachable(base_url, next(reasons, str(error) or type(error).__name__), WRONG_ADDRESS)


def _unreachable(base_url: str, reason: str, hint: str) -> ClusterUnreachable:
    return ClusterUnreachable(f"cannot reach {base_url}: {reason}", hint=hint)


def _overdue(base_url: str, path: str, overdue: Overdue) -> InventoryError:
    if overdue.silent:
        return _unreachable(base_url, f"{_STUCK[overdue.stage]} within {overdue.seconds:g} s",
                            NOT_TLS if overdue.stage == "tls" else WRONG_ADDRESS)
    return ClusterUnreachable(f"{base_url} did not finish its answer to {path} within {overdue.seconds:g} s",
                              hint=OVERLOADED)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(cause: BaseException) -> str | None:
    """Explain a failure to connect; None for an exception that only wraps another."""
    if isinstance(cause, OSError) and cause.errno in _NO_ROUTE:
        return f"no route to it ({cause.strerror})"
    return next((words.format(cause) for kind, words in _REASONS if isinstance(cause, kind)), None)


def _tls_failed(base_url: str, error: ssl.SSLError) -> InventoryError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _unreachable(base_url, f"its certificate is not trusted ({error.verify_message})",
                            "if your own authority issued it, name that authority's file in SSL_CERT_FILE")
    reason = (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
    rejects_ours = "alert" in reason and ("certificate" in reason or "handshake" in reason or "unknown ca" in reason)
    hint = f"does it require a client certificate? Name it in {CERTIFICATE_VARIABLE} and FLEETCTL_CLIENT_KEY"
    return _unreachable(base_url, f"TLS failed ({reason})", hint if rejects_ours else NOT_TLS)


def raise_if_refused(base_url: str, path: str, answer: Answer, access: Access) -> None:
    """Raise ClusterRefused, with a hint, for 401, 403, 407 and a redirect."""
    try:
        _raise_if_refused(base_url + answer.via, path, answer, access)
    except ClusterRefused as error:
        raise (_with_way_around(error) if answer.via else error) from None


def _raise_if_refused(base_url: str, path: str, answer: Answer, access: Access) -> None:
    if answer.status_code == 407:
        raise ClusterRefused(f"cannot reach {base_url}: the proxy requires a login of its own (407 on {path})",
                             hint="put it into the proxy's address, as in http://user:password@proxy:3128")
    if answer.status_code == 401:
        login = _login(answer)
        raise _proxy_login(base_url, path, login, access) if login else _unauthorized(base_url, path, access)
    if answer.status_code == 403:
        raise _forbidden(base_url, path, access, proxied=bool(answer.via))
    if answer.has_redirect_location:
        target = answer.url.join(answer.headers["location"]).host
        raise ClusterRefused(f"{base_url} redirects {path} to {target} ({answer.status_code})",
                             hint="is a login page in front of it? Use an address without one, or put the headers "
                                  f"that it accepts into {HEADERS_VARIABLE}")


def _login(answer: Answer) -> str | None:
    """Return the authentication scheme that a proxy requests, if any."""
    schemes = [challenge.split(" ", 1)[0].lower() for challenge in answer.headers.get_list("www-authenticate", True)]
    return next((_LOGINS[scheme] for scheme in schemes if scheme in _LOGINS), None)


def _proxy_login(base_url: str, path: str, login: str, access: Access) -> ClusterRefused:
    message = f"a proxy in front of {base_url} requires a login of its own (401 on {path}, {login})"
    if access.withheld:
        return ClusterRefused(f"{message}; {_NOT_SENT}", hint=_NAME_ADDRESS)
    if access.own_authorization:
        return ClusterRefused(f"{message}, and did not accept the Authorization in {HEADERS_VARIABLE}")
    return ClusterRefused(
        f"{message}; the cluster's token is for the cluster alone",
        hint=f'put the login into {HEADERS_VARIABLE}, as {{"Authorization": "{login} ..."}}; a token for the '
             'cluster behind it then also goes there, as "X-Ray-Authorization": "Bearer ..."')


def _unauthorized(base_url: str, path: str, access: Access) -> ClusterRefused:
    if access.withheld:
        return ClusterRefused(f"{base_url} requires a token (401 on {path}); {_NOT_SENT}", hint=_NAME_ADDRESS)
    if access.own_authorization:
        return ClusterRefused(f"{base_url} did not accept the Authorization in {HEADERS_VARIABLE} (401 on {path})",
                              hint=_INSTEAD_OF_TOKEN)
    problem = "did not recognize the token header" if access.token else "requires a token, and there is none"
    return ClusterRefused(f"{base_url} {problem} (401 on {path})", hint=f"put the cluster's token in {TOKEN_SOURCES}")


def _forbidden(base_url: str, path: str, access: Access, *, proxied: bool) -> ClusterRefused:
    if access.withheld:
        return ClusterRefused(f"{base_url} refused the request (403 on {path}); {_NOT_SENT}", hint=_NAME_ADDRESS)
    if access.own_authorization:
        return ClusterRefused(f"{base_url} refused the Authorization in {HEADERS_VARIABLE} (403 on {path})",
                              hint=f"{_INSTEAD_OF_TOKEN}; {_PROXY_MAY_REFUSE}")
    wrong = access.token and not proxied  # a proxy refuses for other reasons
    problem = "refused the token: it is the wrong one" if wrong else "refused the request"
    return ClusterRefused(f"{base_url} {problem} (403 on {path})",
                          hint=f"the token comes from the first of {TOKEN_SOURCES}; {_PROXY_MAY_REFUSE}")
