"""A running replica as a source: its server over HTTP, with a token that each path has of its own.

One connection is one fetch for the source, from its first bytes to its close. `serve.py` is the other side.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import socket
import urllib.parse
from typing import Any, Iterator, List, Mapping, Optional, Sequence

from . import others
from .index import Index, WeightsError, read_index
from .sources import Origin, SourceBroke, SourceBusy, SourceFailed, Stream, stream_of

AT_ONCE = 256 << 10
"""The bytes to wait for: each wake-up costs more than what it brings. A source that is alive gives them in IDLE_S."""
TELL_S = 10.0
VIEW_HEADER, WANTED_HEADER, SIGNATURE_HEADER = "X-Fleetctl-View", "X-Fleetctl-Wanted", "X-Fleetctl-Signature"


def token(secret: bytes, path: str) -> str:
    """Return what a request for `path` must carry: the secret itself never travels."""
    return hmac.new(secret, b"GET " + path.encode(), hashlib.sha256).hexdigest()


def signature(secret: bytes, path: str, body: bytes) -> str:
    """Return what proves that a document of `path` comes from one that has the secret."""
    return hmac.new(secret, b"INDEX " + path.encode() + b"\n" + body, hashlib.sha256).hexdigest()


def others_path(artifact: str) -> str:
    """Return where a source is told who else has an artifact."""
    return f"/v1/{artifact}/others"


def tell(givers: Sequence[str], artifact: str, secret: bytes, other: others.Other) -> None:
    """Tell the sources at these addresses who has got it from them; one that does not hear it is none the worse."""
    path, body = others_path(artifact), others.encoded([other])
    for address in givers:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException), contextlib.closing(
                http.client.HTTPConnection(address, timeout=TELL_S)) as connection:
            connection.request("POST", path, body, {SIGNATURE_HEADER: signature(secret, path, body)})
            connection.getresponse()


def is_signed(given: Optional[str], secret: bytes, path: str, body: bytes) -> bool:
    """Return whether the signature that came with a document of `path` is one of this cluster."""
    return hmac.compare_digest((given or "").encode(), signature(secret, path, body).encode())


class LargeReads(Stream):
    """A body without encryption whose reader sleeps until much of it has come. `connection` = where it comes from."""

    def __init__(self, body: Stream, connection: Optional[socket.socket]) -> None:
        self.__dict__.update(body.__dict__)
        self._connection, self._least = connection, 1

    def readinto(self, buffer: memoryview) -> int:
        """Fill the begin of `buffer` and return how much; 0 at the end."""
        # never for a read that may be the last: the next answer on this connection may be shorter than AT_ONCE
        least = AT_ONCE if (self.left or 0) >= len(buffer) + 2 * AT_ONCE else 1
        if least != self._least and self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
            self._least = least
        return super().readinto(buffer)


class Peer(Origin):
    """A replica that serves an artifact: `view` = the view it has; `whole` = it has all, and makes any view."""

    kind = "peer"

    def __init__(self, source: Mapping[str, Any], artifact: str, secret: bytes) -> None:
        super().__init__(f"{source['replica']} at {source['address']}")
        self.view: Optional[str] = source.get("view")
        self.whole = self.view is None or bool(source.get("whole"))
        self._base = f"/v1/{artifact}"
        self._secret = secret
        self._signed: Optional[str] = None
        self.address = str(source["address"])
        self._wanted: Optional[str] = None
        self.others: List[others.Other] = []
        """Whom it named when it was busy."""
        self._connection: Optional[http.client.HTTPConnection] = None
        self.folder = f"{self._base}/files"

    def index(self) -> bytes:
        """Return the bytes of the artifact's index."""
        with self._get(f"{self._base}/index", {}, 0) as stream:
            return stream.whole()

    def view_index(self, view_id: str, layout: Mapping[str, Any]) -> Index:
        """Return the index of a view; SourceBusy while the source still makes it."""
        path = f"{self._base}/views/{view_id}/index"
        with self._get(path, {VIEW_HEADER: json.dumps(layout)}, 0) as stream:
            body = stream.whole()
        if not is_signed(self._signed, self._secret, path, body):
            raise SourceFailed("the index of its view is not signed by this cluster")
        try:
            return read_index(body)
        except WeightsError as error:
            raise SourceFailed(str(error)) from None

    def read_from(self, view_id: Optional[str], wanted: Optional[str] = None) -> None:
        """Read the files of a view from now on, None = the artifact's own: another fetch.

        `wanted` = the view that some of those files are.
        """
        self.close()
        self._wanted = wanted
        self.folder = f"{self._base}/views/{view_id}/files" if view_id else f"{self._base}/files"

    def open(self, path: str, start: int) -> Any:
        """Open a file from `start` on."""
        wanted = {WANTED_HEADER: self._wanted} if self._wanted else {}
        return self._get(f"{self.folder}/{urllib.parse.quote(path)}", wanted, start)

    @contextlib.contextmanager
    def _get(self, path: str, headers: Mapping[str, str], start: int) -> Iterator[Stream]:
        given = {"Authorization": f"Bearer {token(self._secret, path)}", "Range": f"bytes={start}-", **headers}
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(self.address, timeout=self.limits.timeout())
            self._connection.request("GET", path, headers=given)
            answer = self._connection.getresponse()
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            raise SourceBroke(f"no answer ({str(error) or error.__class__.__name__})") from None
        stream = LargeReads(stream_of(answer, self.limits), self._connection.sock)
        self._signed = answer.headers.get(SIGNATURE_HEADER)
        try:
            if answer.status == 202:
                raise SourceBusy("it still makes the view")
            if answer.status == 429:
                self.others = self._named(path, answer)
                raise SourceBusy("it serves others")
            if answer.status not in {200, 206}:
                text = b""
                with contextlib.suppress(OSError, http.client.HTTPException):
                    text = answer.read(500)
                raise SourceFailed(f"it answers {answer.status}: {text.decode(errors='replace').strip()}")
            yield stream
        finally:
            answer.close()
            if stream.left != 0:
                self.close()

    def _named(self, path: str, answer: http.client.HTTPResponse) -> List[others.Other]:
        """Return whom a busy source names; nobody where that is not signed by this cluster."""
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            body = answer.read(others.MOST_BYTES)
            if is_signed(self._signed, self._secret, path, body):
                return others.decoded(body)
        return []

    def close(self) -> None:
        """End the fetch: the source has a place for another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
