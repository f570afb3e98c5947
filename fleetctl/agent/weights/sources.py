"""Origins of weights: a path, HTTP, Hugging Face and S3. Each streams a file from a given byte.

A source is never trusted: the reader verifies. A source fails with SourceFailed, whose message is shown to the user.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import importlib
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..in_thread import Late, in_thread
from .index import NAME, WeightsError, real_path
from .proxy import proxy_for

IDLE_S = 30.0
"""Seconds for which a source may send nothing."""
MOST_INDEX = 256 << 20
BLOCK, BLOCKS_AHEAD = 1 << 20, 4
"""How a file system is read: while a block is hashed and written, the next ones are read."""


class SourceFailed(Exception):
    """The fetch gives up on a source; the message says why."""


class SourceBroke(SourceFailed):
    """A source that was interrupted or is slow: it may work later, unlike one that sends wrong bytes or refuses."""


class SourceBusy(SourceFailed):
    """A source at its limit of concurrent fetches, or still making the requested view."""


class FetchLimits:
    """The limits that a fetch sets its sources. This base class only sets the default timeouts."""

    def timeout(self) -> float:
        """Return the seconds for which a source may send nothing."""
        return IDLE_S

    def patience(self) -> float:
        """Return the seconds for which a file system may hang: its server may come back."""
        return IDLE_S

    def received(self, size: int, seconds: float) -> None:
        """Count `size` bytes received in `seconds`; raises if the source is too slow or the deadline has passed."""


class _Ahead:
    """Opens and reads a file in a thread of its own, some blocks ahead: no wait for it exceeds the fetch's patience.

    A file system whose server is gone, or a library, may hang for good; the thread is left behind then.
    """

    def __init__(self, path: str, open_file: Callable[[], Any], limits: FetchLimits) -> None:
        self._path, self._open, self._limits = path, open_file, limits
        self._blocks: queue.Queue[Any] = queue.Queue(BLOCKS_AHEAD)
        self._block = memoryview(b"")
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="fleetctl-read", daemon=True).start()
        try:
            self._next()
        except BaseException:
            self.close()
            raise

    def _run(self) -> None:
        try:
            with self._open() as file:
                self._put(b"")
                while not self._closed.is_set() and (block := file.read(BLOCK)):
                    self._put(block)
            self._put(b"")
        except Exception as error:
            self._put(error)

    def _put(self, found: Any) -> None:
        while not self._closed.is_set():
            try:
                self._blocks.put(found, timeout=1.0)
                break
            except queue.Full:
                continue

    def _next(self) -> memoryview:
        """Return the next block, empty at the end; raises the reader's error, or SourceBroke if none comes in time."""
        patience_s = self._limits.patience()
        try:
            found = self._blocks.get(timeout=patience_s)
        except queue.Empty:
            self._limits.timeout()  # raises if it was the time of the whole fetch that has passed
            raise SourceBroke(f"{self._path}: nothing was read for {patience_s:.0f} s") from None
        if isinstance(found, Exception):
            raise found
        return memoryview(found)

    def readinto(self, buffer: memoryview) -> int:
        """Read into the start of `buffer` and return the number of bytes; 0 = end of the file."""
        self._block = self._block or self._next()
        size = min(len(buffer), len(self._block))
        buffer[:size], self._block = self._block[:size], self._block[size:]
        return size

    def close(self) -> None:
        """Let the thread end, once it no longer hangs."""
        self._closed.set()



class Stream:
    """A body, checked against the limits after each read. `left` = bytes still to come, if known."""

    def __init__(self, read: Callable[[memoryview], int], limits: FetchLimits, left: Optional[int] = None) -> None:
        self._read, self._limits, self.left = read, limits, left

    def readinto(self, buffer: memoryview) -> int:
        """Read into the start of `buffer` and return the number of bytes; 0 = end of the body."""
        if self.left is not None:
            buffer = buffer[:self.left]
        begun = time.monotonic()
        try:
            size = self._read(buffer) if len(buffer) else 0
        except SourceFailed:
            raise
        except Exception as error:  # a library may raise anything
            raise SourceBroke(f"reading was interrupted ({_one_line(error)})") from None
        self.left = None if self.left is None else self.left - size
        self._limits.received(size, time.monotonic() - begun)
        return size

    def read_all(self) -> bytes:
        """Read the whole body; raises SourceFailed above MOST_INDEX bytes."""
        body, buffer = bytearray(), memoryview(bytearray(1 << 20))
        while len(body) <= MOST_INDEX:
            size = self.readinto(buffer)
            if not size:
                return bytes(body)
            body += buffer[:size]
        raise SourceFailed(f"its index is larger than {MOST_INDEX >> 20} MiB")


def stream_of(response: Any, limits: FetchLimits) -> Stream:
    """Return the body of an HTTP response."""

    def read_chunked(buffer: memoryview) -> int:
        data = response.read1(len(buffer))
        buffer[:len(data)] = data
        return len(data)

    if response.length is None:
        return Stream(read_chunked, limits)
    return Stream(response.fp.readinto1, limits, response.length)


class Origin:
    """A location with an artifact's files. `name` is shown to the user; `open` and its streams raise SourceFailed."""

    kind = "origin"

    def __init__(self, name: str) -> None:
        self.name = name
        self.limits = FetchLimits()

    def index(self) -> bytes:
        """Return the encoded index, which is next to the files."""
        with self.open(NAME, 0) as stream:
            return stream.read_all()

    def open(self, path: str, start: int) -> ContextManager[Stream]:
        """Open a file at byte `start`."""
        raise NotImplementedError

    def report_wrong(self, path: str) -> None:
        """Tell the source, if it can be told, that a piece of this file was wrong."""

    def close(self) -> None:
        """Close open connections."""


class PathOrigin(Origin):
    """A folder in the node's file system."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._folder = folder

    @contextlib.contextmanager
    def open(self, path: str, start: int) -> Iterator[Stream]:
        """Open a file at byte `start`; a link that leaves the folder is refused."""
        def open_file() -> Any:
            real = real_path(self._folder, path)
            if real is None:
                raise SourceFailed(f"{path} is a link that leaves the folder")
            file = open(real, "rb", buffering=0)  # noqa: SIM115  # its reader closes it
            if start:
                file.seek(start)
            return file

        try:
            ahead = _Ahead(path, open_file, self.limits)
        except OSError as error:
            raise SourceFailed(f"{path}: {error.strerror}") from None
        with contextlib.closing(ahead):
            yield Stream(ahead.readinto, self.limits)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class HttpOrigin(Origin):
    """A folder over HTTP, read with range requests; redirects are not followed."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        user, _, host = parts.netloc.rpartition("@")
        self._parts = parts._replace(netloc=host)
        super().__init__(self._parts._replace(query="").geturl())  # a query may be a token
        self._auth = {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()} if user else {}
        proxy = proxy_for(self.name)
        self._via = f" through {proxy}" if proxy else ""
        self._opener = urllib.request.build_opener(
            _NoRedirect, urllib.request.ProxyHandler({parts.scheme: proxy.url} if proxy else {}))

    @contextlib.contextmanager
    def open(self, path: str, start: int) -> Iterator[Stream]:
        """Open a file at byte `start`; a response with another range is refused."""
        url = self._parts._replace(path=self._parts.path.rstrip("/") + "/" + urllib.parse.quote(path)).geturl()
        byte_range = {"Range": f"bytes={start}-"} if start else {}
        request = urllib.request.Request(url, headers={**self._auth, **byte_range})
        try:
            within_s = self.limits.timeout()
            response = in_thread(lambda: self._opener.open(request, timeout=within_s), within_s, "fleetctl-ask")
        except Late:
            raise SourceBroke(f"{path}: its header was not complete after {within_s:.0f} s{self._via}") from None
        except urllib.error.HTTPError as error:
            error.close()
            target = f", a redirect to {error.headers['Location']}" if error.code in {301, 302, 303, 307, 308} else ""
            raise SourceFailed(f"{path}: HTTP status {error.code}{target}{self._via}") from None
        except http.client.HTTPException as error:  # its text may hold the query, which may be a token
            raise SourceBroke(f"{path}: not an HTTP response ({error.__class__.__name__}){self._via}") from None
        except (OSError, ValueError) as error:
            raise SourceBroke(f"{path}: {getattr(error, 'reason', None) or error}{self._via}") from None
        with response:
            if response.status != (206 if start else 200):
                raise SourceFailed(f"{path}: no support for range requests (HTTP status {response.status}){self._via}")
            yield stream_of(response, self.limits)


class FilesystemOrigin(Origin):
    """A folder in an fsspec file system, if the node has the library for it."""

    def __init__(self, name: str, system: Any, folder: str) -> None:
        super().__init__(name)
        self._system, self._folder = system, folder

    @contextlib.contextmanager
    def open(self, path: str, start: int) -> Iterator[Stream]:
        """Open a file at byte `start`."""
        def open_file() -> Any:
            file = self._system.open(f"{self._folder}/{path}", "rb", block_size=8 << 20)
            if start:
                file.seek(start)
            return file

        try:
            ahead = _Ahead(path, open_file, self.limits)
        except (SourceFailed, WeightsError):
            raise
        except Exception as error:  # a library may raise anything
            raise SourceFailed(f"{path}: {_one_line(error)}") from None
        with contextlib.closing(ahead):
            yield Stream(ahead.readinto, self.limits)


KINDS: Dict[str, Callable[[str], Origin]] = {
    "path": PathOrigin,
    "http": HttpOrigin,
    "hf": lambda name: FilesystemOrigin(f"hf {name}", importlib.import_module("huggingface_hub").HfFileSystem(), name),
    "s3": lambda name: FilesystemOrigin(f"s3 {name}", importlib.import_module("fsspec").filesystem("s3"),
                                        name.rstrip("/")),
}
Left = Tuple[str, str]
"""A source that the fetch gave up on: its name and the reason."""


def origins_of(wanted: Sequence[Mapping[str, str]]) -> Tuple[List[Origin], List[Left]]:
    """Return the usable origins in the given order, and the origins that this node cannot read."""
    origins: List[Origin] = []
    left: List[Left] = []
    for row in wanted:
        kind, location = next(iter(row.items()))
        try:
            origins.append(KINDS[kind](location))
        except KeyError:
            left.append((f"{kind} {location}", "unknown kind of origin"))
        except ImportError as error:
            left.append((f"{kind} {location}", f"this node's Python has no {error.name or error}"))
        except Exception as error:
            left.append((f"{kind} {location}", _one_line(error)))
    return origins, left


def _one_line(error: Exception) -> str:
    return ": ".join(filter(None, (error.__class__.__name__, " ".join(str(error).split()))))
