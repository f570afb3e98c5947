"""The index of an artifact: the SHA-256 of each file and of each of its pieces. Its own SHA-256 names the artifact.

No `from __future__ import annotations` here: `parse` reads the types of fields.
"""

import hashlib
import json
import os
import re
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..own_files import replace_own
from ..wire import document_of, parse

NAME = "fleetctl-weights.json"
PIECE = 64 << 20
_HASH = re.compile(r"[0-9a-f]{64}\Z")


class WeightsError(Exception):
    """Weights that cannot be fetched or used; the message names the file and the problem."""


class File(NamedTuple):
    """One file. `chunks` = the hashes of its 64 MiB pieces; `sha256` is empty for the weight file of a view."""

    path: str
    size: int
    sha256: str
    chunks: Tuple[str, ...]


class IndexDocument(NamedTuple):
    """An encoded index; the rows of other versions may have another form."""

    version: int
    files: Sequence[Any]


class Index(NamedTuple):
    """The files of an artifact or of one of its views, sorted by path."""

    files: Tuple[File, ...]

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(file.size for file in self.files)

    def encoded(self) -> bytes:
        """Encode the index as canonical JSON."""
        document = {"version": 1, "files": document_of(sorted(self.files))}
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def name_of(data: bytes) -> str:
    """Return the name of the artifact with this encoded index."""
    return hashlib.sha256(data).hexdigest()


def write_index(folder: str) -> str:
    """Hash all files in a folder, write the index there, and return the artifact's name."""
    paths = sorted(paths_in(folder))
    for path in paths:
        require_safe(path)
        if not os.path.isfile(real_path(folder, path) or ""):
            raise WeightsError(f"{path}: not a regular file, or a link that leaves the folder")
    data = Index(tuple(_hashed(folder, path) for path in paths)).encoded()
    replace_own(os.path.join(folder, NAME), data, 0o644)  # not through a link that came with the model
    return name_of(data)


def paths_in(folder: str) -> Iterator[str]:
    """Yield the path of each file to index: not the index itself, and nothing hidden."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            path = os.path.relpath(os.path.join(parent, name), folder)
            if path != NAME and not name.startswith("."):
                yield path


def real_path(folder: str, path: str) -> Optional[str]:
    """Return where a file of a folder really is; None = a link leads out of the folder.

    In a cache of Hugging Face, links of `snapshots/<revision>` may lead to the `blobs` beside it.
    """
    root = os.path.realpath(folder)
    cache, snapshots = os.path.split(os.path.dirname(root))
    blobs = os.path.join(cache, "blobs")
    within = [root, *([blobs] if snapshots == "snapshots" and not os.path.islink(blobs) else [])]
    real = os.path.realpath(os.path.join(root, path))
    return real if any(os.path.commonpath([folder, real]) == folder for folder in within) else None


def _hashed(folder: str, path: str) -> File:
    whole, chunks, size = hashlib.sha256(), [], 0
    with open(os.path.join(folder, path), "rb") as file:
        for piece in iter(lambda: file.read(PIECE), b""):
            whole.update(piece)
            chunks.append(hashlib.sha256(piece).hexdigest())
            size += len(piece)
    return File(path, size, whole.hexdigest(), tuple(chunks))


def read_index(data: bytes, name: Optional[str] = None) -> Index:
    """Decode and validate an index; `name` = the artifact it must belong to. Raises WeightsError."""
    if name is not None and name_of(data) != name:
        raise WeightsError(f"its index has the hash {name_of(data)[:12]}, not {name[:12]}")
    try:
        document = parse(IndexDocument, json.loads(data))
        if document.version != 1:
            raise WeightsError(f"unknown index version {document.version}")
        files = [parse(File, row) for row in document.files]
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"its index cannot be read ({error.__class__.__name__}: {error})") from None
    for file in files:
        _require_valid(file)
    _require_apart([file.path for file in files])
    return Index(tuple(sorted(files)))


def _require_valid(file: File) -> None:
    require_safe(file.path)
    if file.size < 0 or len(file.chunks) != -(-file.size // PIECE):
        raise WeightsError(f"{file.path}: size {file.size} and {len(file.chunks)} pieces contradict each other")
    for text in (*file.chunks, *([file.sha256] if file.sha256 else [])):
        if not _HASH.match(text):
            raise WeightsError(f"{file.path}: {text!r} is not a SHA-256")


def require_safe(path: str) -> None:
    """Raise WeightsError unless the path is plainly below its folder."""
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts) or not path.isprintable() or "\\" in path or path == NAME:
        raise WeightsError(f"{path!r} is not the path of a file below the folder")


def _require_apart(paths: List[str]) -> None:
    taken = set(paths)
    if len(taken) != len(paths):
        raise WeightsError("a path appears twice in the index")
    for path in paths:
        parts = path.split("/")
        if {"/".join(parts[:length]) for length in range(1, len(parts))} & taken:
            raise WeightsError(f"{path!r} is below a file of the index")
