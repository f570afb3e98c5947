"""Where a model is read from: a folder, a file, a folder over HTTP, a repository of Hugging Face, a bucket of S3.

Only ranges are asked for, and no more than `MOST_READ` bytes in all. Whatever answers is not trusted: a size is taken
from the answer to a range, and a longer answer than asked for is cut off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from fleetctl.sizing.headers import HeaderError, RangedFile

if TYPE_CHECKING:
    import httpx

MOST_READ = 64 << 20
MOST_SMALL = 1 << 20
MOST_INDEX = 32 << 20
"""The most bytes of a list of shards: several times that of a model of a thousand billion weights."""
MOST_FILES = 4_096
TIMEOUT_S = 30.0
"""For which a server may send nothing."""
ANSWER_S = 300.0
HUB = "https://huggingface.co"
MODEL_FILES = (".safetensors", ".gguf")
_REVISION = re.compile(r"[\w./-]{1,200}")
_REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")


class OriginError(Exception):
    """A source cannot be read; the message says why, and what is possible."""


class Origin:
    """A source of files. `name` says what it is, with the revision where there is one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._left = MOST_READ

    def names(self) -> list[str] | None:
        """Return the names of its files; None if it cannot list them."""
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
        return found.read(0, found.size)

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise HeaderError(f"the headers of {self.name} have more than {MOST_READ >> 20} MiB")


class FolderOrigin(Origin):
    """A folder of the file system."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self._folder = folder

    def names(self) -> list[str]:
        """Return the names of its files."""
        return sorted(entry.name for entry in self._folder.iterdir() if entry.is_file())

    def file(self, name: str) -> RangedFile | None:
        """Return a file; None if there is none."""
        path = self._folder / name
        if "/" in name or not path.is_file():
            return None

        def read(begin: int, count: int) -> bytes:
            self._spend(count)
            with path.open("rb") as opened:
                opened.seek(begin)
                return opened.read(count)

        return RangedFile(name, path.stat().st_size, read)


class HttpOrigin(Origin):
    """A folder over HTTP that answers to ranges. `listed` = the names of its files, if they are known."""

    def __init__(self, name: str, url: str, client: httpx.Client, listed: list[str] | None = None) -> None:
        super().__init__(name)
        self._url, self._client, self._listed = url.rstrip("/"), client, listed

    def names(self) -> list[str] | None:
        """Return the names of its files, if they are known."""
        return self._listed

    def file(self, name: str) -> RangedFile | None:
        """Return a file; None if there is none. Its first byte is asked for, whose answer tells the size."""
        if self._listed is not None and name not in self._listed:
            return None
        url = f"{self._url}/{quote(name)}"
        answer = _ranged(self._client, url, 0, 1)
        if answer is None:
            return None
        size, _ = answer

        def read(begin: int, count: int) -> bytes:
            self._spend(count)
            found = _ranged(self._client, url, begin, count)
            if found is None or found[0] != size:
                raise HeaderError(f"{name} changed while it was read")
            return found[1]

        return RangedFile(name, size, read)


def _ranged(client: httpx.Client, url: str, begin: int, count: int) -> tuple[int, bytes] | None:
    """Return the size of a file and `count` of its bytes; None if it does not exist. Raises OriginError."""
    import httpx

    where = urlsplit(url)._replace(query="").geturl()
    if not count:
        return None
    body, deadline = bytearray(), monotonic() + ANSWER_S
    try:
        with client.stream("GET", url, headers={
                "Range": f"bytes={begin}-{begin + count - 1}", "Accept-Encoding": "identity"}) as answer:
            if answer.status_code == httpx.codes.NOT_FOUND:
                return None
            total = re.fullmatch(rf"bytes {begin}-\d{{1,18}}/(\d{{1,18}})", answer.headers.get("Content-Range", ""))
            if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                return 0, b""
            if answer.status_code != httpx.codes.PARTIAL_CONTENT or total is None:
                raise OriginError(_refusal(where, answer))
            for piece in answer.iter_raw(1 << 16):
                body += piece
                if len(body) >= count:
                    break
                if monotonic() > deadline:
                    raise OriginError(f"{where}: {count:,} bytes did not come within {ANSWER_S:.0f} s")
    except httpx.HTTPError as error:
        raise OriginError(f"{where}: {str(error) or error.__class__.__name__}") from None
    return int(total[1]), bytes(body[:count])


def _refusal(where: str, answer: httpx.Response) -> str:
    if answer.status_code in (401, 403):
        return f"{where}: HTTP status {answer.status_code}; a token in HF_TOKEN is sent to Hugging Face alone"
    if answer.is_success:
        return f"{where}: it sends whole files, not ranges, so that all of the model would be read"
    return f"{where}: HTTP status {answer.status_code}"


@contextmanager
def opened(source: str, variables: Mapping[str, str]) -> Iterator[tuple[Origin, str | None]]:
    """Yield the origin that `source` names, and the one file of it that it names, if any; raises OriginError.

    `variables` = the environment: HF_ENDPOINT, and HF_TOKEN, which is sent to that hub alone.
    """
    if source.startswith(("http://", "https://")):
        import httpx

        folder, _, last = source.rstrip("/").rpartition("/")
        is_file = last.lower().endswith(MODEL_FILES)
        with httpx.Client(timeout=TIMEOUT_S, follow_redirects=True, max_redirects=5) as client:
            yield HttpOrigin(source, folder if is_file else source, client), last if is_file else None
    elif source.startswith("hf:"):
        with _hub(source.removeprefix("hf:"), variables) as origin:
            yield origin, None
    elif source.startswith("s3:"):
        yield _bucket(source), None
    else:
        path = Path(source)
        if path.is_dir():
            yield FolderOrigin(path), None
        elif path.is_file():
            yield FolderOrigin(path.parent), path.name
        else:
            raise OriginError("no such folder or file; a model may also be at http://, https://, "
                              "hf:OWNER/NAME@REVISION or s3://BUCKET/FOLDER")


@contextmanager
def _hub(name: str, variables: Mapping[str, str]) -> Iterator[Origin]:
    import httpx

    repository, _, revision = name.partition("@")
    revision = revision or "main"
    if not _REPOSITORY.fullmatch(repository) or not _REVISION.fullmatch(revision) or ".." in name:
        raise OriginError(f"hf:{name} does not name a repository: expected hf:OWNER/NAME@REVISION")
    hub = variables.get("HF_ENDPOINT", HUB).rstrip("/")
    token = variables.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(timeout=TIMEOUT_S, follow_redirects=True, max_redirects=5, headers=headers) as client:
        url = f"{hub}/api/models/{repository}/revision/{quote(revision, safe='')}"
        try:
            with client.stream("GET", url) as answer:
                body = bytearray()
                for piece in answer.iter_bytes(1 << 16):
                    body += piece
                    if len(body) > MOST_INDEX:
                        raise OriginError(f"{url}: more than {MOST_INDEX >> 20} MiB")
        except httpx.HTTPError as error:
            raise OriginError(f"{hub}: {str(error) or error.__class__.__name__}") from None
        if not answer.is_success:
            raise OriginError(_refusal(url, answer))
        about = json_object(bytes(body), url)
        commit = about.get("sha")
        if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40}", commit):
            raise OriginError(f"{url}: the answer names no commit")
        listed = [file["rfilename"] for file in about.get("siblings", [])[:MOST_FILES]
                  if isinstance(file, dict) and isinstance(file.get("rfilename"), str)]
        yield HttpOrigin(f"hf:{repository}@{commit}", f"{hub}/{repository}/resolve/{commit}", client, listed)


def _bucket(source: str) -> Origin:
    try:
        system = import_module("fsspec").filesystem("s3")
    except ImportError:
        raise OriginError("needs the Python package s3fs beside fleetctl; or describe the model from a folder or over "
                          "HTTP") from None
    return _SystemOrigin(source, system, source.removeprefix("s3:").lstrip("/"))


class _SystemOrigin(Origin):
    """A folder in a file system of fsspec."""

    def __init__(self, name: str, system: Any, folder: str) -> None:  # noqa: ANN401  a library without types
        super().__init__(name)
        self._system, self._folder = system, folder

    def names(self) -> list[str]:
        paths = self._call(lambda: self._system.ls(self._folder, detail=False))
        return sorted(path.rpartition("/")[2] for path in paths)

    def file(self, name: str) -> RangedFile | None:
        path = f"{self._folder}/{name}"
        if not self._call(lambda: self._system.exists(path)):
            return None

        def read(begin: int, count: int) -> bytes:
            self._spend(count)
            return bytes(self._call(lambda: self._system.cat_file(path, start=begin, end=begin + count)))[:count]

        return RangedFile(name, int(self._call(lambda: self._system.size(path))), read)

    def _call(self, asked: Any) -> Any:  # noqa: ANN401  a library without types
        try:
            return asked()
        except Exception as error:  # noqa: BLE001  a library may raise anything
            raise OriginError(f"{self.name}: {' '.join(str(error).split()) or error.__class__.__name__}") from None


def json_object(text: bytes, name: str) -> dict[str, Any]:
    """Return a JSON object; raises OriginError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise OriginError(f"{name} is not a JSON object")
    return found
