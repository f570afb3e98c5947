"""What the two ends of a connection exchange: paths, messages, and the proof that both know the session's secret.

The secret itself is never sent. The receiver's first request brings its nonce, and the answer is the source's nonce.
Both nonces and both addresses are in the key of all tokens and signatures of the connection. So none of them is of use
on another connection, not even to a program that passes them on, and clocks need not agree.

No `from __future__ import annotations` here: `parse` reads the types of fields.
"""

import hashlib
import hmac
import ipaddress
import json
import re
import secrets
import socket
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from ..messages import WeightSource
from ..wire import document_of, parse
from .views import View

PREFIX = "/v2"
"""How the path of every request begins. A source of version 1 accepted tokens that were good on any connection."""
NONCE_PATH = f"{PREFIX}/nonce/"
"""The path of the first request of a connection, before the receiver's nonce; the source's nonce is the body."""
VIEW_HEADER, WANTED_HEADER, SIGNATURE_HEADER = "X-Fleetctl-View", "X-Fleetctl-Wanted", "X-Fleetctl-Signature"
MOST_NAMED, MOST_NAMED_BYTES = 4, 4096
"""How many sources a busy one suggests, and how long the message is at most."""
_NONCE = re.compile("[0-9a-f]{32}")
_ADDRESS = re.compile(r"[0-9A-Za-z.:\[\]-]{1,255}:[0-9]{1,5}")
_VIEW = re.compile(r"[0-9a-f]{16}")


class ViewRequest(NamedTuple):
    """The view that a receiver needs, in VIEW_HEADER: the source makes it if it is missing."""

    view: View
    rank: int
    size: int


class WrongReport(NamedTuple):
    """The file of a view, None = of the artifact itself, of which a receiver got a wrong piece."""

    view: Optional[str]
    path: str = ""


def others_path(artifact: str) -> str:
    """Return the path at which a source accepts reports of other copies of an artifact."""
    return f"{PREFIX}/{artifact}/others"


def wrong_path(artifact: str) -> str:
    """Return the path at which a source accepts reports of wrong pieces that it has sent."""
    return f"{PREFIX}/{artifact}/wrong"


def encoded(sources: Sequence[WeightSource]) -> bytes:
    """Encode a message that names sources."""
    return json.dumps(document_of(sources)).encode()


def decoded(body: bytes) -> List[WeightSource]:
    """Decode and validate a message that names sources; raises ValueError."""
    rows: Any = json.loads(body)
    if not isinstance(rows, list) or len(rows) > MOST_NAMED:
        raise ValueError(f"not a list of at most {MOST_NAMED} sources")
    return [_validated(parse(WeightSource, row)) for row in rows]


def _validated(source: WeightSource) -> WeightSource:
    if not _ADDRESS.fullmatch(source.address):
        raise ValueError("not an address")
    if source.view is not None and not _VIEW.fullmatch(source.view):
        raise ValueError("not a view")
    name = " ".join(source.replica.split())[:200]
    return source._replace(replica=name, whole=source.view is None or source.whole)


def new_nonce() -> str:
    """Return a nonce: 128 random bits."""
    return secrets.token_hex(16)


def is_nonce(text: str) -> bool:
    """Return whether `text` has the form of a nonce."""
    return _NONCE.fullmatch(text) is not None


def host_of(address: Tuple[Any, ...]) -> str:
    """Return the IP address of a socket's name in one spelling: IPv4 also if the socket is one of IPv6."""
    found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    return str((found.ipv4_mapped if found.version == 6 else None) or found)


class Proof:
    """What one end of a connection signs and checks. Nonces and addresses are those of the receiver, then the source's.

    `receiver` and `source` are names of sockets, as from getsockname and getpeername.
    """

    def __init__(self, secret: bytes, nonces: Tuple[str, str], receiver: Tuple[Any, ...],
                 source: Tuple[Any, ...]) -> None:
        ends = (f"{host_of(end)} {end[1]}" for end in (receiver, source))
        self._key = _hash(secret, "\n".join((PREFIX, *nonces, *ends)).encode()).digest()

    def token(self, method: str, path: str, body: bytes = b"") -> str:
        """Return the token of a request: proof that it was made by a receiver with the secret."""
        return _hash(self._key, f"REQUEST {method} {path} {len(body)}\n".encode() + body).hexdigest()

    def admits(self, given: Optional[str], method: str, path: str, body: bytes = b"") -> bool:
        """Return whether the value of a request's Authorization is its token."""
        return hmac.compare_digest((given or "").encode(), f"Bearer {self.token(method, path, body)}".encode())

    def signature(self, path: str, body: bytes) -> str:
        """Return the signature of the answer to a request for `path`: proof that the source has the secret."""
        return _hash(self._key, f"ANSWER {path} {len(body)}\n".encode() + body).hexdigest()

    def is_signed(self, given: Optional[str], path: str, body: bytes) -> bool:
        """Return whether `given` is the source's signature of its answer."""
        return hmac.compare_digest((given or "").encode(), self.signature(path, body).encode())


def proof_of_receiver(secret: bytes, nonces: Tuple[str, str], connected: socket.socket) -> Proof:
    """Return the proof of the end that connected."""
    return Proof(secret, nonces, connected.getsockname(), connected.getpeername())


def proof_of_source(secret: bytes, nonces: Tuple[str, str], accepted: socket.socket) -> Proof:
    """Return the proof of the end that was connected to."""
    return Proof(secret, nonces, accepted.getpeername(), accepted.getsockname())


def _hash(key: bytes, data: bytes) -> hmac.HMAC:
    return hmac.new(key, data, hashlib.sha256)
