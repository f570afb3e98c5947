"""The way to a cluster: the URL of its dashboard, from an address, and the credentials of a request to it.

An address `http(s)://...` is the dashboard itself, and so is `host:8265`, its default port. `auto` and any other
`host:port` mean a Ray whose dashboard must be looked up. That needs ray and runs in a subprocess, because the client
never imports ray. Token, headers and client certificate are secret, and go only to the address they were given for.
"""

from __future__ import annotations

import ipaddress
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fleetctl.errors import ClusterUnreachable, InventoryError
from fleetctl.fleetfile.file_tree import read_whole

if TYPE_CHECKING:
    import ssl


TOKEN_VARIABLE = "RAY_AUTH_TOKEN"  # noqa: S105
TOKEN_PATH_VARIABLE = "RAY_AUTH_TOKEN_PATH"  # noqa: S105
DEFAULT_TOKEN_PATH = ".ray/auth_token"  # noqa: S105
HEADERS_VARIABLE = "FLEETCTL_HEADERS"
CERTIFICATE_VARIABLE, KEY_VARIABLE = "FLEETCTL_CLIENT_CERT", "FLEETCTL_CLIENT_KEY"

SECRET_BYTES = 1 << 20
"""The largest file that is read for a token, an address or a certificate."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?|")
_RESERVED = frozenset({"accept", "accept-encoding", "connection", "content-length", "content-type", "transfer-encoding",
                  "user-agent"})
"""Headers that the request itself sets: framing, encoding, and a User-Agent that Ray does not take for a browser's."""

_EXAMPLE = 'a JSON object of strings: {"X-Api-Key": "..."}'


@dataclass(frozen=True, slots=True)
class Access:
    """The credentials of each request. `withheld` = they exist, but only a file names the address, so none are sent."""

    token: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificate: tuple[Path, Path] | None = None
    withheld: bool = False

    @property
    def own_authorization(self) -> bool:
        """Whether the headers include an Authorization, which overrides the token."""
        return any(name.lower() == "authorization" for name in self.headers)

    @property
    def secrets(self) -> str:
        """What each request carries, in words; empty for nothing. A certificate's key is never sent."""
        token = "the cluster's token" if self.token is not None and not self.own_authorization else ""
        return " and ".join(filter(None, (token, "the headers for a proxy" if self.headers else "")))

    def all_headers(self) -> dict[str, str]:
        """Return the headers of each request."""
        if self.token is None or self.own_authorization:
            return dict(self.headers)
        return {**self.headers, "Authorization": f"Bearer {self.token}"}

    def only_for_given(self, address: str, *, given: bool) -> Access:
        """Return the access for `address`; `given` = a flag or variable names the address, not only a file."""
        if given or is_local(address) or self == Access():
            return self
        return Access(withheld=True)


def find_access(environ: Mapping[str, str], home: Path) -> Access:
    """Return the access from environment and home folder; raises InventoryError if it cannot be read or sent."""
    certificate, key = (environ.get(name, "").strip() for name in (CERTIFICATE_VARIABLE, KEY_VARIABLE))
    if key and not certificate:
        raise InventoryError(f"{KEY_VARIABLE} is set, but {CERTIFICATE_VARIABLE} is not",
                             hint=f"set both, or name one file with certificate and key in {CERTIFICATE_VARIABLE}")
    return Access(
        token=find_token(environ, home),
        headers=parse_headers(environ.get(HEADERS_VARIABLE, "")),
        certificate=(Path(certificate).expanduser(), Path(key or certificate).expanduser()) if certificate else None)


def find_token(environ: Mapping[str, str], home: Path) -> str | None:
    """Return the token, or None. As in Ray: RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH names, ~/.ray/auth_token.

    Raises InventoryError when the file cannot be read or is empty, or when the token cannot be sent.
    """
    if token := environ.get(TOKEN_VARIABLE, "").strip():
        return _sendable(token, TOKEN_VARIABLE)
    if named := environ.get(TOKEN_PATH_VARIABLE, "").strip():
        return _sendable(_read_token(Path(named).expanduser()), TOKEN_PATH_VARIABLE)
    default = home / DEFAULT_TOKEN_PATH
    if not default.is_file():
        return None
    return _sendable(_read_token(default), str(default))


def without_token(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a Ray that sends no token, not even the one it finds by itself."""
    kept = {name: value for name, value in environ.items() if name not in (TOKEN_VARIABLE, TOKEN_PATH_VARIABLE)}
    return {**kept, "RAY_AUTH_MODE": "disabled"}


def _read_token(path: Path) -> str:
    try:
        token = read_whole(path, SECRET_BYTES).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        order = f"{TOKEN_VARIABLE} overrides {TOKEN_PATH_VARIABLE}, which overrides ~/{DEFAULT_TOKEN_PATH}"
        raise InventoryError(f"the token file {path} cannot be read: {reason}", hint=order) from None
    if not token:
        raise InventoryError(f"the token file {path} is empty", hint="write the cluster's token into it, or remove it")
    return token


def _sendable(token: str, source: str) -> str:
    """Refuse a token that no HTTP header can carry, without showing it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InventoryError(f"the token from {source} contains spaces or characters that no HTTP header can carry",
                             hint="a token is one line of ASCII letters, digits and symbols")
    return token


def is_local(address: str) -> bool:
    """Return whether `address` is on this machine: `auto`, or a loopback host."""
    if address == "auto":
        return True
    host = urlsplit(address if "://" in address else f"//{address}").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_headers(text: str) -> Mapping[str, str]:
    """Return the headers in FLEETCTL_HEADERS; raises InventoryError, which shows no value."""
    if not text.strip():
        return {}
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        pairs = None
    if not isinstance(pairs, list) or not text.lstrip().startswith("{"):
        raise InventoryError(f"{HEADERS_VARIABLE} is not a JSON object", hint=f"it takes {_EXAMPLE}")
    headers: dict[str, str] = {}
    for number, (name, value) in enumerate(pairs, 1):
        _check_header(number, name, value, {earlier.lower() for earlier in headers})
        headers[name] = value
    return headers


def _check_header(number: int, name: str, value: object, earlier: set[str]) -> None:
    if not _NAME.fullmatch(name):
        raise InventoryError(f"the name in entry {number} of {HEADERS_VARIABLE} is not a valid header name",
                             hint=f"it takes {_EXAMPLE}")
    if name.lower() in earlier:
        raise InventoryError(f"{HEADERS_VARIABLE} sets {name} twice", hint="header names are case-insensitive")
    if name.lower() in _RESERVED:
        raise InventoryError(f"{HEADERS_VARIABLE} sets {name}, which fleetctl sets itself",
                             hint="it takes the headers that a proxy in front of the cluster requires")
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise InventoryError(f"{HEADERS_VARIABLE}: the value of {name} is not a valid header value",
                             hint="one line of ASCII letters, digits and symbols, without spaces around it")


def tls_context(certificate: tuple[Path, Path] | None) -> ssl.SSLContext:
    """Return the TLS context: the authorities of SSL_CERT_FILE, and the client certificate; raises InventoryError."""
    import ssl

    import httpx

    try:
        context = httpx.create_ssl_context()
    except OSError as error:  # includes SSLError
        raise InventoryError(f"the authorities in SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {_reason(error)}",
                             hint="it names a PEM file with the certificates to trust") from None
    if certificate is None:
        return context
    for variable, path in zip((CERTIFICATE_VARIABLE, KEY_VARIABLE), certificate, strict=True):
        try:
            read_whole(path, SECRET_BYTES)
        except OSError as error:
            raise InventoryError(f"the file {path} of {variable} cannot be read: {error.strerror or error}") from None
    try:
        context.load_cert_chain(*certificate, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        files = " and ".join(dict.fromkeys(str(path) for path in certificate))
        raise InventoryError(f"{files} cannot be used as a client certificate: {_reason(error)}",
                             hint=f"{CERTIFICATE_VARIABLE} names a PEM file with the certificate (and its chain), "
                                  f"{KEY_VARIABLE} one with its key, without a password") from None
    return context


def _no_password() -> str:
    """Refuse: without this, OpenSSL would prompt on the terminal."""
    raise ValueError("its key has a password")


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return str(reason).replace("_", " ").lower()


LOOKUP_TIMEOUT_S, WAITING_S = 30.0, 3.0
DASHBOARD_PORT = ":8265"
ADDRESSES = "http(s)://host:8265 or host:8265 for a Ray dashboard; auto or host:port for a Ray to look up"

_HOST_PORT = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_NO_RAY = 3
_LOOKUP = f"""
import sys
sys.path = [one for one in sys.path if one]  # not the current folder: it may be the checkout of a change
try:
    from ray.dashboard.utils import ray_address_to_api_server_url
except ImportError:
    sys.exit({_NO_RAY})
print("url=" + ray_address_to_api_server_url(sys.argv[1]))
"""


def dashboard_url(address: str, environ: Mapping[str, str], *, python: str = sys.executable,
                  on_waiting: Callable[[], None] = lambda: None) -> str:
    """Return the dashboard's URL for `address`, without a trailing slash.

    `environ` is for the lookup process; `python` is an interpreter with ray; `on_waiting` is called when the lookup is
    slow. Raises InventoryError for an address of no known form and ClusterUnreachable when no Ray is found there.
    """
    address = checked_address(address)
    if address.endswith(DASHBOARD_PORT) and "://" not in address:
        return f"http://{address}"
    return address if "://" in address else _look_up(address, environ, python, on_waiting)


def checked_address(address: str) -> str:
    """Return the address, without a URL's trailing slash; raises InventoryError for an address of no known form."""
    if "://" in address:
        return _checked_url(address)
    if address == "auto" or _HOST_PORT.fullmatch(address):
        return address
    raise InventoryError(f"{address!r} is not a cluster address", hint=f"allowed: {ADDRESSES}")


def _checked_url(address: str) -> str:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InventoryError(f"{without_secret(address)!r} is not a cluster address",
                             hint=f"allowed: {ADDRESSES}")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InventoryError(f"the address {without_secret(address)} has more than scheme, host, port and path",
                             hint="plans and logs show addresses: a token belongs in RAY_AUTH_TOKEN")
    return address.rstrip("/")


def without_secret(address: str) -> str:
    """Remove the parts of an address that may be secret, for a message."""
    return re.sub(r"//.*@", "//***@", address).partition("?")[0].partition("#")[0]


def _look_up(address: str, environ: Mapping[str, str], python: str, on_waiting: Callable[[], None]) -> str:
    waiting = threading.Timer(WAITING_S, on_waiting)
    waiting.start()
    try:
        lookup = subprocess.run([python, "-c", _LOOKUP, address], env=dict(environ), capture_output=True, text=True,
                                errors="replace", timeout=LOOKUP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ClusterUnreachable(f"no Ray answered at {address!r} within {LOOKUP_TIMEOUT_S:.0f} s",
                                 hint=_lookup_hint(address)) from None
    finally:
        waiting.cancel()
    if lookup.returncode == _NO_RAY:
        raise InventoryError(f"looking up the address {address!r} needs ray, which is not installed here",
                             hint="give the dashboard's own address (http://ray-head:8265), or "
                                  "pip install 'ray[default]'")
    urls = [line.removeprefix("url=") for line in lookup.stdout.splitlines() if line.startswith("url=http")]
    if lookup.returncode != 0 or not urls:
        errors = [line.strip() for line in lookup.stderr.splitlines() if line.strip()]
        why = f": {errors[-1][:200]}" if errors else ""
        raise ClusterUnreachable(f"no Ray with a dashboard was found at {address!r}{why}",
                                 hint=_lookup_hint(address))
    return urls[-1].rstrip("/")


def _lookup_hint(address: str) -> str:
    meant = f"did you mean the dashboard at http://{address}? " if ":" in address else ""
    return f"{meant}Allowed: {ADDRESSES}"
