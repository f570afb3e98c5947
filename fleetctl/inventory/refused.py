"""Answers that turn a request away: no token, the wrong one, a login of a proxy's own, a redirect to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import ClusterRefused
from fleetctl.inventory.access import HEADERS_VARIABLE, Access

if TYPE_CHECKING:
    import httpx

TOKEN_SOURCES = "RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH names, or ~/.ray/auth_token"  # noqa: S105

_LOGINS = {"basic": "Basic", "digest": "Digest", "negotiate": "Negotiate", "ntlm": "NTLM"}
"""Ways to log in that are never Ray's: it asks for none by name."""

_NOT_SENT = "what there is of token, headers and certificate was not sent: only a file names this address"
_SAY_ADDRESS = "if they are for this address, say so: --address URL, or FLEETCTL_ADDRESS"


def raise_if_refused(base_url: str, path: str, answer: httpx.Response, access: Access) -> None:
    """Raise ClusterRefused, with what to do, for 401, 403 and a redirect."""
    if answer.status_code == 401:
        login = _login(answer)
        raise _asks_for_login(base_url, path, login, access) if login else _unknown(base_url, path, access)
    if answer.status_code == 403:
        raise _forbidden(base_url, path, access)
    if answer.has_redirect_location:
        target = answer.url.join(answer.headers["location"]).host
        raise ClusterRefused(f"{base_url} redirects {path} to {target} ({answer.status_code})",
                             hint="is a login page in front of it? Use an address that answers without one, or put "
                                  f"what it accepts into {HEADERS_VARIABLE}")


def _login(answer: httpx.Response) -> str | None:
    """Return the way to log in that is asked for, if it is none of Ray's."""
    asked = [challenge.split(" ", 1)[0].lower() for challenge in answer.headers.get_list("www-authenticate", True)]
    return next((_LOGINS[scheme] for scheme in asked if scheme in _LOGINS), None)


def _asks_for_login(base_url: str, path: str, login: str, access: Access) -> ClusterRefused:
    message = f"a proxy in front of {base_url} asks for a login of its own (401 on {path}, {login})"
    if access.withheld:
        return ClusterRefused(f"{message}; {_NOT_SENT}", hint=_SAY_ADDRESS)
    if access.own_authorization:
        return ClusterRefused(f"{message}, and did not accept the Authorization in {HEADERS_VARIABLE}")
    return ClusterRefused(
        f"{message}; the cluster's token is not what it wants",
        hint=f'put what it wants into {HEADERS_VARIABLE}, as {{"Authorization": "{login} ..."}}; a token for the '
             'cluster behind it then goes there as "X-Ray-Authorization": "Bearer ..."')


def _unknown(base_url: str, path: str, access: Access) -> ClusterRefused:
    if access.withheld:
        return ClusterRefused(f"{base_url} wants a token (401 on {path}); {_NOT_SENT}", hint=_SAY_ADDRESS)
    if access.own_authorization:
        return ClusterRefused(f"{base_url} did not accept the Authorization in {HEADERS_VARIABLE} (401 on {path})",
                              hint="it is sent instead of the cluster's token")
    had = "did not accept the way the token was sent" if access.token else "wants a token, and there is none"
    return ClusterRefused(f"{base_url} {had} (401 on {path})", hint=f"put the cluster's token in {TOKEN_SOURCES}")


def _forbidden(base_url: str, path: str, access: Access) -> ClusterRefused:
    if access.withheld:
        return ClusterRefused(f"{base_url} refused the request (403 on {path}); {_NOT_SENT}", hint=_SAY_ADDRESS)
    if access.own_authorization:
        return ClusterRefused(f"{base_url} refused the Authorization in {HEADERS_VARIABLE} (403 on {path})",
                              hint="it is sent instead of the cluster's token; a proxy in front of the dashboard can "
                                   "refuse a path or a method, too")
    had = "refused the token: it is the wrong one" if access.token else "refused the request"
    return ClusterRefused(
        f"{base_url} {had} (403 on {path})",
        hint=f"the token comes from {TOKEN_SOURCES}, the first that is set; a proxy in front of the dashboard can "
             "refuse a path or a method, too")
