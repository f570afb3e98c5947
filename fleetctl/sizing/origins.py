"""Where a model is read from: a folder, a file, a folder over HTTP, a repository of Hugging Face, a bucket of S3; or
the index of `weights` in one of them.

Only ranges are asked for, and no more than `MOST_READ` bytes in all, within `MOST_S`. Whatever answers is not trusted:
a size is taken from the answer to a range, and a longer answer than asked for is cut off.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from fleetctl.agent.weights.index import NAME as WEIGHTS_INDEX
from fleetctl.agent.weights.index import WeightsError, name_of, read_index, real_path
from fleetctl.agent.weights.proxy import proxy_for
from fleetctl.sizing.headers import FIRST, HeaderError, RangedFile, parse_json, shown

if TYPE_CHECKING:
    import httpx

MOST_READ = 64 << 20
MOST_SMALL = 1 << 20
MOST_INDEX = 32 << 20
"""The most bytes of a list of shards: several times that of a model of a thousand billion weights."""
MOST_FILES = 4_096
TIMEOUT_S = 30.0
"""For which a server may send nothing."""
MOST_S = 900.0
"""For all of it: a server that sends a byte now and then is left."""
HUB = "https://huggingface.co"
MODEL_FILES = (".safetensors", ".gguf")
_IN_CACHE = re.compile(r"/models--([\w.-]+--[\w.-]+)/snapshots/([0-9a-f]{40})$", re.ASCII)
"""A snapshot in a cache of Hugging Face."""
REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)
"""OWNER/NAME on a hub."""
_REVISION = re.compile(r"[\w./-]{1,200}", re.ASCII)
Result = TypeVar("Result")


class OriginError(Exception):
    """A source cannot be read; the message says why, and what is possible."""


class Origin:
    """A source of files. `name` says what it is, with the revision where there is one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._left, self._lock = MOST_READ, threading.Lock()

    def names(self) -> list[str] | None:
        """Return the names of its files; None if it cannot list them. Raises OriginError."""
        raise NotImplementedError

    def file(self, name: str) -> RangedFile | None:
        """Return a file; None if there is none. Raises OriginError."""
        raise NotImplementedError

    def small(self, name: str, most: int = MOST_SMALL) -> bytes | None:
        """Return a whole small file; None if there is none. Raises OriginError."""
        found = self.file(name)
        if found is None:
            return None
        if found.size > most:
            raise OriginError(f"{name} has {found.size:,} bytes, and at most {most:,} are read")
        text = found.read(0, found.size)
        if len(text) < found.size:
            raise OriginError(f"{name} ends after {len(text):,} of {found.size:,} bytes")
        return text

    def _spend(self, count: int) -> None:
        with self._lock:
            self._left -= count
            left = self._left
        if left < 0:
            raise HeaderError(f"the headers of {self.name} have more than {MOST_READ >> 20} MiB")


class FolderOrigin(Origin):
    """A folder of the file system. `named` = the file in it that was named, which may be a link to anywhere."""

    def __init__(self, folder: Path, named: str | None = None) -> None:
        cached = _IN_CACHE.search(str(folder.resolve()))
        super().__init__(f"hf:{cached[1].replace('--', '/', 1)}@{cached[2]}" if cached else str(folder))
        self._folder, self._named = folder, named

    def names(self) -> list[str]:
        """Return the names of its files."""
        return sorted(entry.name for entry in self._folder.iterdir() if entry.is_file())

    def file(self, name: str) -> RangedFile | None:
        """Return a file; None if there is none, or if it is not a regular file."""
        path = self._folder / name
        if not path.is_file():
            return None
        if name != self._named and real_path(str(self._folder), name) is None:
            raise OriginError(f"{name} is a link that leaves the folder")

        def read(begin: int, count: int) -> bytes:
            self._spend(count)
            # what has become a pipe in the meantime would be waited for
            with open(path, "rb", opener=lambda file, flags: os.open(file, flags | os.O_NONBLOCK)) as opened:
                if not S_ISREG(os.fstat(opened.fileno()).st_mode):
                    raise OriginError(f"{name} is not a regular file")
                opened.seek(begin)
                return opened.read(count)

        return RangedFile(name, path.stat().st_size, read)


class IndexedOrigin(Origin):
    """The files that an index of `weights` lists, in the folder `within` that holds it."""

    def __init__(self, within: Origin) -> None:
        data = within.small(WEIGHTS_INDEX, MOST_INDEX)
        if data is None:
            raise OriginError(f"it has no {WEIGHTS_INDEX}")
        try:
            parse_json(data)  # bounds what reading it takes
            files = read_index(data).files
        except (ValueError, WeightsError) as error:
            raise OriginError(f"{WEIGHTS_INDEX}: {shown(str(error))}") from None
        super().__init__(f"{within.name}@{name_of(data)}")
        self._within, self._sizes = within, {file.path: file.size for file in files if "/" not in file.path}

    def names(self) -> list[str]:
        """Return the names of the listed files."""
        return sorted(self._sizes)

    def file(self, name: str) -> RangedFile | None:
        """Return a file; None if the index does not list it."""
        found = self._within.file(name) if name in self._sizes else None
        self._compare(name, None if found is None else found.size)
        return found

    def small(self, name: str, most: int = MOST_SMALL) -> bytes | None:
        """Return a whole small file; None if the index does not list it."""
        text = self._within.small(name, most) if name in self._sizes else None
        self._compare(name, None if text is None else len(text))
        return text

    def _compare(self, name: str, size: int | None) -> None:
        if size is not None and size != self._sizes[name]:
            raise OriginError(f"{name} has {size:,} bytes, and {self._sizes[name]:,} by its index")


class HttpOrigin(Origin):
    """A folder over HTTP that answers to ranges. `listed` = the names of its files, if they are known."""

    def __init__(self, name: str, url: str, http: Http, listed: list[str] | None = None) -> None:
        super().__init__(name)
        self._url, self._http, self._listed = urlsplit(url), http, listed

    def names(self) -> list[str] | None:
        """Return the names of its files, if they are known."""
        return self._listed

    def file(self, name: str) -> RangedFile | None:
        """Return a file; None if there is none. Its first bytes are asked for, whose answer tells the size."""
        if self._listed is not None and name not in self._listed:
            return None
        url = self._url_of(name)
        answer = self._http.ranged(url, 0, FIRST)
        if answer is None:
            return None
        size, first = answer
        self._spend(len(first))

        def read(begin: int, count: int) -> bytes:
            if begin + count <= len(first) or count <= 0:
                return first[begin:begin + max(0, count)]
            self._spend(count)
            found = self._http.ranged(url, begin, count)
            if found is None or found[0] != size:
                raise HeaderError(f"{name} changed while it was read")
            return found[1]

        return RangedFile(name, size, read)

    def small(self, name: str, most: int = MOST_SMALL) -> bytes | None:
        """Return a whole small file; None if there is none. It is not asked for by ranges, which a hub may not have for
        files that it keeps in git.
        """
        if self._listed is not None and name not in self._listed:
            return None
        text = self._http.whole(self._url_of(name), most)
        self._spend(len(text or b""))
        return text

    def _url_of(self, name: str) -> str:
        return self._url._replace(path=f"{self._url.path.rstrip('/')}/{quote(name)}").geturl()


class Http:
    """A client that is cut off after `MOST_S`: the timeout of a socket bounds the wait for a part, not for all of it.

    `token` is sent to the host that is asked, and to none that it redirects to; `is_hub` = that is a hub's.
    """

    def __init__(self, token: str | None = None, *, is_hub: bool = False) -> None:
        import httpx

        routes, lock = dict[str, httpx.HTTPTransport](), threading.Lock()

        class ByHost(httpx.BaseTransport):  # a redirect may lead to a host with another proxy
            def handle_request(self, request: httpx.Request) -> httpx.Response:
                proxy = proxy_for(str(request.url))
                key = proxy.url if proxy else ""
                with lock:
                    if key not in routes:
                        routes[key] = httpx.HTTPTransport(proxy=key or None)
                return routes[key].handle_request(request)

            def close(self) -> None:
                for route in routes.values():
                    route.close()

        self._is_hub, token = is_hub, (token or "").strip()
        if not (token.isascii() and token.isprintable()):
            raise OriginError("HF_TOKEN has characters that no token has")
        headers = {"Accept-Encoding": "identity", **({"Authorization": f"Bearer {token}"} if token else {})}
        self._client = httpx.Client(transport=ByHost(), timeout=TIMEOUT_S, follow_redirects=True, max_redirects=5,
                                    headers=headers)
        self._sockets: list[socket.socket] = []
        self._is_overdue = False
        self._timer = threading.Timer(MOST_S, self._cut_off)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Close its connections, also those on which a thread still waits."""
        self._timer.cancel()
        self._shut_down()
        self._client.close()

    def _cut_off(self) -> None:
        self._is_overdue = True
        self._shut_down()

    def _shut_down(self) -> None:
        for connection in self._sockets:
            with suppress(OSError):  # of a TLS connection the plain one is gone
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._sockets.append(info["return_value"].get_extra_info("socket"))

    def ranged(self, url: str, begin: int, count: int) -> tuple[int, bytes] | None:
        """Return the size of a file and `count` of its bytes; None if it does not exist. Raises OriginError."""
        with self._answer(url, {"Range": f"bytes={begin}-{begin + count - 1}"}) as answer:
            if answer.status_code == 404:
                return None
            if answer.status_code == 416:
                return 0, b""
            total = re.fullmatch(rf"bytes {begin}-\d{{1,18}}/(\d{{1,18}})", answer.headers.get("Content-Range", ""))
            if answer.status_code != 206 or total is None:
                raise OriginError(self._refusal(url, answer.status_code))
            return int(total[1]), _body(answer, count)

    def whole(self, url: str, most: int, *, is_there: bool = False) -> bytes | None:
        """Return an answer of at most `most` bytes; None if it does not exist, unless it must. Raises OriginError."""
        with self._answer(url, {}) as answer:
            if answer.status_code == 404 and not is_there:
                return None
            if answer.status_code != 200:
                raise OriginError(self._refusal(url, answer.status_code))
            body = _body(answer, most + 1)
            if len(body) > most:
                raise OriginError(f"{without_secrets(url)}: more than {most >> 20} MiB")
            return body

    def _refusal(self, url: str, status: int) -> str:
        of_hub = {401: "there is no such repository, or it needs a token in HF_TOKEN",
                  403: "the token in HF_TOKEN may not read it; the terms of a gated model are accepted on its page",
                  404: "there is no such repository or revision"}
        why = of_hub.get(status, "") if self._is_hub else "it wants a login" if status in (401, 403) else ""
        if 200 <= status < 300:
            why = "it does not answer to ranges, so all of the model would be read; describe it from a folder"
        return f"{without_secrets(url)}: HTTP status {status}{f': {why}' if why else ''}"

    @contextmanager
    def _answer(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        import httpx

        via = f" through {proxy}" if (proxy := proxy_for(url)) else ""
        try:
            if self._is_overdue:
                raise httpx.ReadTimeout("")
            with self._client.stream("GET", url, headers=headers, extensions={"trace": self._trace}) as answer:
                encoding = answer.headers.get("Content-Encoding", "identity")
                if encoding.lower() not in ("", "identity"):
                    raise OriginError(f"{without_secrets(url)}: it sends {shown(encoding)}, and plain bytes were "
                                      "asked for")
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, ImportError) as error:  # the last two: a proxy
            why = f"not all of it came within {MOST_S:.0f} s" if self._is_overdue else (
                " ".join(str(error).split()) or error.__class__.__name__)
            raise OriginError(f"{without_secrets(url)}{via}: {shown(why)}") from None


def _body(answer: httpx.Response, most: int) -> bytes:
    """Return at most `most` bytes of an answer."""
    body = bytearray()
    for piece in answer.iter_raw(1 << 16):
        body += piece
        if len(body) >= most:
            break
    return bytes(body[:most])


def without_secrets(url: str) -> str:
    """Return a URL without what may be a secret: a login, a query. Any other text stays."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = re.split("[?#]", rest)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" if mark else url


@contextmanager
def opened(source: str, variables: Mapping[str, str]) -> Iterator[tuple[Origin, str | None]]:
    """Yield the origin that `source` names, and the one file of it that it names, if any; raises OriginError.

    `variables` = the environment: HF_ENDPOINT, and HF_TOKEN, which is sent to that hub alone.
    """
    if source.startswith(("http://", "https://")):
        try:
            url = urlsplit(source)
        except ValueError as error:
            raise OriginError(f"it is not a URL: {error}") from None
        if f"https://{url.hostname}" == HUB and len(owner_and_name := url.path.strip("/").split("/")) == 2:
            raise OriginError(f"it is a page about the model: name it as hf:{'/'.join(owner_and_name)}@main")
        folder, last = _split(url.path)
        with closing(Http()) as http:
            url = url._replace(path=folder)
            yield _read_by(HttpOrigin(without_secrets(url.geturl()), url.geturl(), http), last)
    elif source.startswith("hf:"):
        with _hub(source.removeprefix("hf:"), variables) as origin:
            yield origin, None
    elif source.startswith("s3:"):
        folder, last = _split(source.removeprefix("s3:").lstrip("/"))
        yield _read_by(_SystemOrigin(f"s3://{folder}", "s3", folder), last)
    else:
        path = Path(source)
        if not path.exists():
            hub = f"hf:{source}@main" if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", source) else "hf:OWNER/NAME@REVISION"
            raise OriginError(f"no such folder or file; a model may also be at http(s)://HOST/FOLDER, {hub} or "
                              "s3://BUCKET/FOLDER")
        if path.is_dir():
            yield FolderOrigin(path), None
        elif path.is_file():
            yield _read_by(FolderOrigin(path.parent, path.name), path.name)
        else:
            raise OriginError("it is neither a folder nor a regular file")


def _split(path: str) -> tuple[str, str | None]:
    """Return the folder of a path, and the file in it that the path names, if any."""
    folder, _, last = path.rstrip("/").rpartition("/")
    is_file = last == WEIGHTS_INDEX or last.lower().endswith(MODEL_FILES)
    return (folder, last) if is_file else (path.rstrip("/"), None)


def _read_by(origin: Origin, last: str | None) -> tuple[Origin, str | None]:
    return (IndexedOrigin(origin), None) if last == WEIGHTS_INDEX else (origin, last)


@contextmanager
def _hub(name: str, variables: Mapping[str, str]) -> Iterator[Origin]:
    repository, _, revision = name.partition("@")
    revision = revision or "main"
    if not REPOSITORY.fullmatch(repository) or not _REVISION.fullmatch(revision) or ".." in name:
        raise OriginError(f"hf:{name} does not name a repository: expected hf:OWNER/NAME@REVISION")
    hub = (variables.get("HF_ENDPOINT") or HUB).rstrip("/")
    with closing(Http(variables.get("HF_TOKEN"), is_hub=True)) as http:
        url = f"{hub}/api/models/{repository}/revision/{quote(revision, safe='')}"
        about = json_object(http.whole(url, MOST_INDEX, is_there=True) or b"", without_secrets(url))
        commit, files = about.get("sha"), about.get("siblings")
        if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40}", commit) or not isinstance(files, list):
            raise OriginError(f"{without_secrets(url)}: the answer names no commit, or no files")
        listed = [file["rfilename"] for file in files
                  if isinstance(file, dict) and isinstance(file.get("rfilename"), str)]
        yield HttpOrigin(f"hf:{repository}@{commit}", f"{hub}/{repository}/resolve/{commit}", http, listed)


class _SystemOrigin(Origin):
    """A folder in a file system of fsspec."""

    def __init__(self, name: str, protocol: str, folder: str) -> None:
        super().__init__(name)
        try:
            library = import_module("fsspec")
            self._system, self._folder = self._call(lambda: library.filesystem(protocol)), folder
        except ImportError:
            raise OriginError("needs the Python package s3fs beside fleetctl; or describe the model from a folder or "
                              "over HTTP") from None

    def names(self) -> list[str]:
        """Return the names of its files."""
        return self._call(lambda: sorted(str(path).rpartition("/")[2]
                                         for path in self._system.ls(self._folder, detail=False)))

    def file(self, name: str) -> RangedFile | None:
        """Return a file; None if there is none."""
        path = f"{self._folder}/{name}"
        if not self._call(lambda: self._system.exists(path)):
            return None

        def read(begin: int, count: int) -> bytes:
            self._spend(count)
            return self._call(lambda: bytes(self._system.cat_file(path, start=begin, end=begin + count))[:count])

        return RangedFile(name, self._call(lambda: int(self._system.size(path))), read)

    def _call(self, asked: Callable[[], Result]) -> Result:
        try:
            return asked()
        except ImportError:
            raise
        except Exception as error:  # noqa: BLE001  a library may raise anything
            why = " ".join(str(error).split()) or error.__class__.__name__
            there = "there is no such folder or file: " if isinstance(error, FileNotFoundError) else ""
            raise OriginError(f"{self.name}: {there}{shown(why)}") from None


def json_object(text: bytes, name: str) -> dict[str, Any]:
    """Return a JSON object; raises OriginError."""
    try:
        found = parse_json(text)
    except ValueError as error:
        raise OriginError(f"{name} is not JSON: {shown(str(error))}") from None
    if not isinstance(found, dict):
        raise OriginError(f"{name} is not a JSON object")
    return found
