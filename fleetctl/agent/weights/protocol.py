"""What the two ends of a connection exchange, and a running replica as a source: the client of `serve.py`.

Paths, messages, and the proof that both ends know the session's secret. The secret itself is never sent. The receiver's
first request brings its nonce, and the answer is the source's nonce. Both nonces and both addresses are in the key of
all tokens and signatures of the connection. So none of them is of use on another connection, not even to a program that
passes them on, and clocks need not agree. Each request has its own token.

To the source, one connection is one fetch, from its first bytes until it is closed.

No `from __future__ import annotations` here: `parse` reads the types of fields.
"""

import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import json
import math
import re
import secrets
import socket
import threading
import time
import urllib.parse
from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..messages import WeightSource
from ..probes import DeadlineSocket, connect_until
from ..wire import document_of, parse
from .index import Index, WeightsError, read_index
from .sources import Origin, SourceBroke, SourceBusy, SourceFailed, Stream, stream_of
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


LOW_WATER_BYTES = 256 << 10
"""Bytes that a read waits for, because waking up for less costs too much. A live source sends them within IDLE_S."""
POST_TIMEOUT_S = 10.0
MOST_TEXT = 500
TRIES = 3
"""How often a new connection is tried: a source with too many strangers closes the oldest of the new ones."""


def connect(address: str, secret: bytes, timeout_s: float) -> Tuple[http.client.HTTPConnection, Proof]:
    """Open a connection to a source and exchange nonces, all within `timeout_s`; raises SourceFailed."""
    own, connection = new_nonce(), None
    try:
        host, _, port = address.rpartition(":")
        connection = connect_until(time.monotonic() + timeout_s, host.strip("[]"), int(port))
        connection.auto_open = 0  # a second connection would need nonces of its own
        connection.request("GET", NONCE_PATH + own)
        response = connection.getresponse()
        text = response.read(MOST_TEXT).decode(errors="replace").strip()
    except (OSError, ValueError, http.client.HTTPException) as error:
        if connection is not None:
            connection.close()
        raise _no_response(error) from error
    if response.status == 200 and is_nonce(text):
        return connection, proof_of_receiver(secret, (own, text), connection.sock)
    connection.close()
    if response.status == 401:
        raise SourceFailed("it runs an older fleetctl, whose tokens are good on any connection: not used before it has "
                           "been restarted")
    raise SourceFailed(f"HTTP status {response.status} in place of a nonce: {text}")


def _no_response(error: Exception) -> SourceBroke:
    return SourceBroke(f"no response ({str(error) or error.__class__.__name__})")


def post(address: str, secret: bytes, path: str, body: bytes) -> int:
    """Send a message to a source and return the HTTP status; raises SourceFailed, OSError or HTTPException."""
    connection, proof = connect(address, secret, POST_TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request("POST", path, body, {"Authorization": f"Bearer {proof.token('POST', path, body)}"})
        return connection.getresponse().status


def report_copy(addresses: Sequence[str], artifact: str, secret: bytes, copy: WeightSource) -> None:
    """Report a new copy to the sources it came from. Best effort: a source that misses the report still works."""
    for address in addresses:
        with contextlib.suppress(SourceFailed, OSError, ValueError, http.client.HTTPException):
            post(address, secret, others_path(artifact), encoded([copy]))


class LargeReads(Stream):
    """An unencrypted body whose reads sleep until LOW_WATER_BYTES have arrived on `connection`."""

    def __init__(self, body: Stream, connection: Optional[socket.socket]) -> None:
        self.__dict__.update(body.__dict__)
        self._connection, self._least = connection, 1

    def readinto(self, buffer: memoryview) -> int:
        """Read into the start of `buffer` and return the number of bytes; 0 = end of the body."""
        # not near the end of the body: the next response on this connection may be shorter than LOW_WATER_BYTES
        least = LOW_WATER_BYTES if (self.left or 0) >= len(buffer) + 2 * LOW_WATER_BYTES else 1
        if least != self._least and self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
            self._least = least
        return super().readinto(buffer)


class Peer(Origin):
    """A replica that serves an artifact. `view` = the view it has; `whole` = it has all files and can make any view."""

    kind = "peer"

    def __init__(self, source: WeightSource, artifact: str, secret: bytes) -> None:
        super().__init__(f"{source.replica} at {source.address}")
        self.view, self.whole = source.view, source.view is None or source.whole
        self._base = f"{PREFIX}/{artifact}"
        self._secret = secret
        self._proof: Optional[Proof] = None
        self._signed: Optional[str] = None
        self.address = source.address
        self._wanted: Optional[str] = None
        self.others: List[WeightSource] = []
        """Other sources it suggested while it was busy."""
        self._connection: Optional[http.client.HTTPConnection] = None
        self._artifact = artifact
        self._reading: Optional[str] = None
        """The view whose files it reads."""
        self.folder = f"{self._base}/files"

    def index(self) -> bytes:
        """Return the artifact's encoded index."""
        with self._get(f"{self._base}/index", {}, 0) as stream:
            return stream.read_all()

    def view_index(self, view_id: str, request: ViewRequest) -> Index:
        """Return the index of a view; raises SourceBusy while the source is making it."""
        path = f"{self._base}/views/{view_id}/index"
        with self._get(path, {VIEW_HEADER: json.dumps(document_of(request))}, 0) as stream:
            body = stream.read_all()
        if not self._is_signed(path, body):
            raise SourceFailed("the index of its view is not signed by this cluster")
        try:
            return read_index(body)
        except WeightsError as error:
            raise SourceFailed(str(error)) from None

    def read_from(self, view_id: Optional[str], wanted: Optional[str] = None) -> None:
        """Start a new fetch of the files of a view; None = the artifact's own files.

        `wanted` = the view to which those files belong: a busy source suggests other sources of it.
        """
        self.close()
        self._wanted, self._reading = wanted, view_id
        self.folder = f"{self._base}/views/{view_id}/files" if view_id else f"{self._base}/files"

    def open(self, path: str, start: int) -> Any:
        """Open a file at byte `start`."""
        wanted = {WANTED_HEADER: self._wanted} if self._wanted else {}
        return self._get(f"{self.folder}/{urllib.parse.quote(path)}", wanted, start)

    def report_wrong(self, path: str) -> None:
        """Tell the source that a piece of this file was wrong, so that it checks its own copy. Best effort."""
        body = json.dumps(document_of(WrongReport(self._reading, path))).encode()

        def report() -> None:
            with contextlib.suppress(SourceFailed, OSError, ValueError, http.client.HTTPException):
                post(self.address, self._secret, wrong_path(self._artifact), body)

        threading.Thread(target=report, name="fleetctl-report", daemon=True).start()

    @contextlib.contextmanager
    def _get(self, path: str, headers: Mapping[str, str], start: int) -> Iterator[Stream]:
        connection, response = self._answer(path, {"Range": f"bytes={start}-", **headers})
        stream = LargeReads(stream_of(response, self.limits), connection.sock)
        self._signed = response.headers.get(SIGNATURE_HEADER)
        try:
            if response.status == 202:
                raise SourceBusy("it is still making the view")
            if response.status == 429:
                self.others = self._suggested(path, response)
                raise SourceBusy("it is serving other fetches")
            if response.status not in {200, 206}:
                text = b""
                with contextlib.suppress(OSError, http.client.HTTPException):
                    text = response.read(MOST_TEXT)
                raise SourceFailed(f"HTTP status {response.status}: {text.decode(errors='replace').strip()}")
            yield stream
        finally:
            response.close()
            if stream.left != 0 or response.status not in {200, 206}:
                self.close()

    def _answer(
        self, path: str, headers: Mapping[str, str],
    ) -> Tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request, on a new connection if there is none, and return the connection and the answer's head."""
        tries = TRIES if self._connection is None else 1
        while True:
            tries -= 1
            try:
                within_s = self.limits.timeout()
                if self._connection is None or self._proof is None:
                    self._connection, self._proof = connect(self.address, self._secret, within_s)
                socket_ = self._connection.sock
                assert isinstance(socket_, DeadlineSocket)
                socket_.deadline = time.monotonic() + within_s
                given = {"Authorization": f"Bearer {self._proof.token('GET', path)}", **headers}
                self._connection.request("GET", path, headers=given)
                response = self._connection.getresponse()
                socket_.deadline, socket_.idle_s = math.inf, within_s
                return self._connection, response
            except (SourceBroke, OSError, ValueError, http.client.HTTPException) as error:
                self.close()
                if tries and isinstance(error.__cause__ or error, (ConnectionResetError, BrokenPipeError)):
                    continue
                raise error if isinstance(error, SourceBroke) else _no_response(error) from None

    def _suggested(self, path: str, response: http.client.HTTPResponse) -> List[WeightSource]:
        """Sources suggested by a busy source; none if the response is not signed by this cluster."""
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            body = response.read(MOST_NAMED_BYTES)
            if self._is_signed(path, body):
                return decoded(body)
        return []

    def _is_signed(self, path: str, body: bytes) -> bool:
        """Return whether the last answer is of a source of this cluster."""
        return self._proof is not None and self._proof.is_signed(self._signed, path, body)

    def close(self) -> None:
        """End the fetch, which frees a place at the source."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
