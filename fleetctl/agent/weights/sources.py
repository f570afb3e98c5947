"""Where weights come from: a path, HTTP, Hugging Face and S3 as origins. Each gives a file from a byte on, as a stream.

A source is never trusted: who reads verifies. It fails with SourceFailed, and the reason is named to people.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import importlib
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Tuple

from .index import NAME

IDLE_S = 30.0
"""How long a source may send nothing at all."""
MOST_INDEX = 256 << 20


class SourceFailed(Exception):
    """A source that is left, and why."""


class SourceBroke(SourceFailed):
    """A source that broke off or is slow, and may go on later; one that lies or refuses does not."""


class SourceBusy(SourceFailed):
    """A source that has as many fetches as it serves at a time, or still makes what is asked for."""


class Limits:
    """What a fetch allows its sources; this one allows all there is."""

    def timeout(self) -> float:
        """Return the seconds for which a source may send nothing."""
        return IDLE_S

    def got(self, size: int, seconds: float) -> None:
        """Note that a source gave `size` bytes in so long; raises where that was too slow, or the time is over."""


class Stream:
    """Bytes that come one read at a time: a slow source cannot hide in a long one. `left` = those to come, if known."""

    def __init__(self, read: Callable[[memoryview], int], limits: Limits, left: Optional[int] = None) -> None:
        self._read, self._limits, self.left = read, limits, left

    def readinto(self, buffer: memoryview) -> int:
        """Fill the begin of `buffer` and return how much; 0 at the end."""
        if self.left is not None:
            buffer = buffer[:self.left]
        begun = time.monotonic()
        try:
            size = self._read(buffer) if len(buffer) else 0
        except SourceFailed:
            raise
        except Exception as error:  # a library's errors are of any kind
            raise SourceBroke(f"it broke off ({_in_a_line(error)})") from None
        self.left = None if self.left is None else self.left - size
        self._limits.got(size, time.monotonic() - begun)
        return size

    def whole(self) -> bytes:
        """Return all of a document."""
        found, buffer = bytearray(), memoryview(bytearray(1 << 20))
        while len(found) <= MOST_INDEX:
            size = self.readinto(buffer)
            if not size:
                return bytes(found)
            found += buffer[:size]
        raise SourceFailed("its index does not end")


def stream_of(answer: Any, limits: Limits) -> Stream:
    """Return the body of an HTTP answer."""

    def read_chunked(buffer: memoryview) -> int:
        data = answer.read1(len(buffer))
        buffer[:len(data)] = data
        return len(data)

    if answer.length is None:
        return Stream(read_chunked, limits)
    return Stream(answer.fp.readinto1, limits, answer.length)


class Origin:
    """A place with an artifact's files. `name` for people; what it opens raises SourceFailed."""

    kind = "origin"

    def __init__(self, name: str) -> None:
        self.name = name
        self.limits = Limits()

    def index(self) -> bytes:
        """Return the bytes of the index that lies beside the files."""
        with self.open(NAME, 0) as stream:
            return stream.whole()

    def open(self, path: str, start: int) -> ContextManager[Stream]:
        """Open a file from byte `start` on."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what is open."""


class PathOrigin(Origin):
    """A folder that the node sees."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._folder = folder

    @contextlib.contextmanager
    def open(self, path: str, start: int) -> Iterator[Stream]:
        """Open a file of the folder; a link that leaves the folder is refused."""
        root = os.path.realpath(self._folder)
        real = os.path.realpath(os.path.join(root, path))
        if os.path.commonpath([root, real]) != root:
            raise SourceFailed(f"{path} is a link that leaves the folder")
        with contextlib.ExitStack() as opened:
            try:
                file = opened.enter_context(open(real, "rb", buffering=0))
            except OSError as error:
                raise SourceFailed(f"{path}: {error.strerror}") from None
            file.seek(start)
            yield Stream(file.readinto, self.limits)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class HttpOrigin(Origin):
    """A folder over HTTP, read by ranges; a redirect is not followed."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        who, _, host = parts.netloc.rpartition("@")
        self._parts = parts._replace(netloc=host)
        super().__init__(self._parts._replace(query="").geturl())  # a query may be a token
        self._given = {"Authorization": "Basic " + base64.b64encode(who.encode()).decode()} if who else {}
        self._opener = urllib.request.build_opener(_NoRedirect)

    @contextlib.contextmanager
    def open(self, path: str, start: int) -> Iterator[Stream]:
        """Open a file of the folder from `start` on; an answer that is not that range is refused."""
        url = self._parts._replace(path=self._parts.path.rstrip("/") + "/" + urllib.parse.quote(path)).geturl()
        request = urllib.request.Request(url, headers={
            **self._given, **({"Range": f"bytes={start}-"} if start else {})})
        try:
            answer = self._opener.open(request, timeout=self.limits.timeout())
        except urllib.error.HTTPError as error:
            error.close()
            where = f" to {error.headers.get('Location')}" if error.code in {301, 302, 303, 307, 308} else ""
            raise SourceFailed(f"{path}: it answers {error.code}{where}") from None
        except http.client.HTTPException as error:  # its text may hold the query, which may be a token
            raise SourceBroke(f"{path}: no HTTP answer ({error.__class__.__name__})") from None
        except (OSError, ValueError) as error:
            raise SourceBroke(f"{path}: {getattr(error, 'reason', None) or error}") from None
        with answer:
            if answer.status != (206 if start else 200):
                raise SourceFailed(f"{path}: it gives no ranges (it answers {answer.status} to one)")
            yield stream_of(answer, self.limits)


class FilesystemOrigin(Origin):
    """A folder in a file system of fsspec, which the node has."""

    def __init__(self, name: str, system: Any, folder: str) -> None:
        super().__init__(name)
        self._system, self._folder = system, folder

    @contextlib.contextmanager
    def open(self, path: str, start: int) -> Iterator[Stream]:
        """Open a file of the folder; its errors are those of a library that we do not know."""
        try:
            file = self._system.open(f"{self._folder}/{path}", "rb", block_size=8 << 20)
            file.seek(start)
        except Exception as error:
            raise SourceFailed(f"{path}: {_in_a_line(error)}") from None
        with file:
            yield Stream(file.readinto, self.limits)


KINDS: Dict[str, Callable[[str], Origin]] = {
    "path": PathOrigin,
    "http": HttpOrigin,
    "hf": lambda name: FilesystemOrigin(f"hf {name}", importlib.import_module("huggingface_hub").HfFileSystem(), name),
    "s3": lambda name: FilesystemOrigin(f"s3 {name}", importlib.import_module("fsspec").filesystem("s3"),
                                        name.rstrip("/")),
}
Left = Tuple[str, str]
"""A source that was left: its name, and why."""


def origins_of(wanted: List[Mapping[str, str]]) -> Tuple[List[Origin], List[Left]]:
    """Return the origins in their order, and those that this node cannot read."""
    found: List[Origin] = []
    left: List[Left] = []
    for one in wanted:
        kind, where = next(iter(one.items()))
        try:
            found.append(KINDS[kind](where))
        except KeyError:
            left.append((f"{kind} {where}", "this fleetctl does not know such an origin"))
        except ImportError as error:
            left.append((f"{kind} {where}", f"this node's Python has no {error.name or error}"))
        except Exception as error:
            left.append((f"{kind} {where}", _in_a_line(error)))
    return found, left


def _in_a_line(error: Exception) -> str:
    return ": ".join(filter(None, (error.__class__.__name__, " ".join(str(error).split()))))
