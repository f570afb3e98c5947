"""The proof that both ends of one connection know the secret of this cluster session. The secret itself is never sent.

The receiver's first request brings its nonce, and the answer is the source's nonce. Both nonces and both addresses are
in the key of all tokens and signatures of the connection. So none of them is of use on another connection, not even to
a program that passes them on, and clocks need not agree.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
from typing import Any, Optional, Tuple

PROTOCOL = "/v2"
"""How the path of every request begins. A source of version 1 accepted tokens that were good on any connection."""
NONCE_PATH = f"{PROTOCOL}/nonce/"
"""The path of the first request of a connection, before the receiver's nonce; the source's nonce is the body."""
_NONCE = re.compile("[0-9a-f]{32}")


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
        self._key = _hash(secret, "\n".join((PROTOCOL, *nonces, *ends)).encode()).digest()

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


def _hash(key: bytes, data: bytes) -> "hmac.HMAC":
    return hmac.new(key, data, hashlib.sha256)
