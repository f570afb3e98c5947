"""What a request carries so that a cluster, or a proxy in front of it, lets it in: token, headers, client certificate.

None of it is ever shown, and it goes only to the address it was given for.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fleetctl.errors import InventoryError
from fleetctl.inventory.token import find_token

if TYPE_CHECKING:
    import ssl

HEADERS_VARIABLE = "FLEETCTL_HEADERS"
CERTIFICATE_VARIABLE, KEY_VARIABLE = "FLEETCTL_CLIENT_CERT", "FLEETCTL_CLIENT_KEY"

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?|")
_OWN = frozenset({"accept", "accept-encoding", "connection", "content-length", "content-type", "transfer-encoding",
                  "user-agent"})
"""What a request itself needs: how it is framed and unpacked, and that Ray does not take it for a browser's."""

_EXAMPLE = 'a JSON object of texts: {"X-Api-Key": "..."}'


@dataclass(frozen=True, slots=True)
class Access:
    """What goes with each request. `withheld` = there is some, but not for an address that only a file names."""

    token: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificate: tuple[Path, Path] | None = None
    withheld: bool = False

    @property
    def own_authorization(self) -> bool:
        """Whether the headers hold an Authorization; it wins over the token."""
        return any(name.lower() == "authorization" for name in self.headers)

    def all_headers(self) -> dict[str, str]:
        """Return the headers of each request."""
        if self.token is None or self.own_authorization:
            return dict(self.headers)
        return {**self.headers, "Authorization": f"Bearer {self.token}"}

    def only_for_given(self, address: str, *, given: bool) -> Access:
        """Return what may go to `address`; `given` = it was named by a flag or variable, not only by a file."""
        if given or is_local(address) or self == Access():
            return self
        return Access(withheld=True)


def find_access(environ: Mapping[str, str], home: Path) -> Access:
    """Return what the environment and the home folder hold; raises InventoryError for what cannot be sent or read."""
    certificate, key = (environ.get(name, "").strip() for name in (CERTIFICATE_VARIABLE, KEY_VARIABLE))
    if key and not certificate:
        raise InventoryError(f"{KEY_VARIABLE} is set, but {CERTIFICATE_VARIABLE} is not",
                             hint="a key goes with its certificate; both may also lie in the one file of "
                                  f"{CERTIFICATE_VARIABLE}")
    return Access(
        token=find_token(environ, home),
        headers=parse_headers(environ.get(HEADERS_VARIABLE, "")),
        certificate=(Path(certificate).expanduser(), Path(key or certificate).expanduser()) if certificate else None,
    )


def is_local(address: str) -> bool:
    """Tell whether `address` stays on this machine: `auto`, or a loopback host."""
    if address == "auto":
        return True
    host = urlsplit(address if "://" in address else f"//{address}").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_headers(text: str) -> Mapping[str, str]:
    """Return the headers in FLEETCTL_HEADERS; raises InventoryError, without a word of what is in it."""
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
        _check_header(number, name, value, {known.lower() for known in headers})
        headers[name] = value
    return headers


def _check_header(number: int, name: str, value: object, known: set[str]) -> None:
    if not _NAME.fullmatch(name):
        raise InventoryError(f"entry {number} of {HEADERS_VARIABLE} has no name a header can have",
                             hint=f"it takes {_EXAMPLE}")
    if name.lower() in known:
        raise InventoryError(f"{HEADERS_VARIABLE} holds {name} twice", hint="small and capital letters are the same")
    if name.lower() in _OWN:
        raise InventoryError(f"{HEADERS_VARIABLE} holds {name}, which fleetctl sets itself",
                             hint="it takes what a proxy in front of the cluster wants to see")
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise InventoryError(f"{HEADERS_VARIABLE}: the value of {name} is no text that a header can carry",
                             hint="one line of ASCII letters, digits and signs, without blanks around it")


def tls_context(certificate: tuple[Path, Path] | None) -> ssl.SSLContext:
    """Return how to speak TLS: trust as SSL_CERT_FILE says, and the client certificate; raises InventoryError."""
    import ssl

    import httpx

    try:
        context = httpx.create_ssl_context()
    except OSError as error:  # of which an SSLError is one
        raise InventoryError(f"the authorities in SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {_reason(error)}",
                             hint="it names a PEM file with the certificates to trust") from None
    if certificate is None:
        return context
    for variable, path in zip((CERTIFICATE_VARIABLE, KEY_VARIABLE), certificate, strict=True):
        _check_readable(variable, path)
    try:
        context.load_cert_chain(*certificate, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        files = " and ".join(dict.fromkeys(str(path) for path in certificate))
        raise InventoryError(f"{files} cannot be used as a client certificate: {_reason(error)}",
                             hint=f"{CERTIFICATE_VARIABLE} names a PEM file with the certificate (and its chain), "
                                  f"{KEY_VARIABLE} one with its key, without a password") from None
    return context


def _check_readable(variable: str, path: Path) -> None:
    try:
        with path.open("rb"):
            return
    except OSError as error:
        raise InventoryError(f"the file {path} of {variable} cannot be read: {error.strerror or error}") from None


def _no_password() -> str:
    """Answer for a person: OpenSSL would ask on the terminal."""
    raise ValueError("its key has a password")


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return str(reason).replace("_", " ").lower()
