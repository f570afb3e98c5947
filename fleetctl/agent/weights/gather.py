"""Make a view from the artifact's own files on this node. Each piece is verified before it is read."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import mmap
import os
import threading
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Set, Tuple

from ..own_files import open_own
from .check import FileState, Verified, state_of
from .index import PIECE, File, Index, WeightsError
from .store import Entry, link_or_copy, make_folder_of
from .views import MODEL, Layout, Stride, Tensor, View, read_header, small_files, tensor_view

BLOCK = 1 << 20
"""Bytes of a strided run that are gathered at once."""
SHORT = 4096
"""NumPy gathers rows shorter than this many bytes: too slow in Python. For longer rows its import does not pay."""


class WrongPiece(WeightsError):
    """A piece of a file on this node that does not match the index."""

    def __init__(self, path: str, piece: int) -> None:
        super().__init__(f"{path}: piece {piece} on this node does not match the index")
        self.path, self.piece = path, piece


def layout_of(canonical: Entry, index: Index, view: View, rank: int, size: int) -> Layout:
    """Return the layout of a view by tensors, from the headers of the artifact's files."""
    headers: Dict[str, List[Tensor]] = {}
    for file in index.files:
        if file.path.endswith(".safetensors"):
            with open(canonical.path(file.path), "rb") as opened:
                try:
                    headers[file.path] = read_header(opened, file.size)
                except WeightsError as error:
                    raise WeightsError(f"{file.path}: {error}") from None
    if not headers:
        raise WeightsError("the artifact has no safetensors file to take tensors from")
    return tensor_view(headers, view, rank, size)


class Canonical:
    """The artifact's files, memory-mapped. A piece that this process has verified is not hashed again."""

    def __init__(self, entry: Entry, index: Index) -> None:
        self._entry = entry
        self._files = {file.path: file for file in index.files}
        self._verified: Dict[str, Tuple[FileState, Set[int]]] = {}
        self._lock = threading.Lock()

    def trust(self) -> "Canonical":
        """Mark all pieces as verified: this process has just fetched them."""
        for path, file in self._files.items():
            self._verified[path] = (self.state(path), set(range(len(file.chunks))))
        return self

    def state(self, path: str) -> FileState:
        """Return the state of a file, which any change of it changes."""
        return state_of(os.lstat(self._entry.path(path)))

    def map(self, path: str) -> mmap.mmap:
        """Map a file, which must not be empty."""
        with open(self._entry.path(path), "rb") as opened:
            with contextlib.suppress(OSError):  # a read-only disk; after it each write through a map changes the state
                os.fsync(opened.fileno())
            return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)

    def require(self, run: Stride, mapped: mmap.mmap) -> None:
        """Raise WeightsError if a piece that the run reads does not match the index."""
        with self._lock:  # several views may be made at the same time; each piece is verified once
            file, state = self._files[run.path], self.state(run.path)
            known = self._verified.get(run.path)
            if known is None or known[0] != state:
                known = self._verified[run.path] = (state, set())
            end = run.start + (run.times - 1) * run.step + run.length
            for number in sorted({*range(run.start // PIECE, -(-end // PIECE))} - known[1]):
                with memoryview(mapped) as view:
                    if hashlib.sha256(view[number * PIECE:(number + 1) * PIECE]).hexdigest() != file.chunks[number]:
                        raise WrongPiece(run.path, number)
                known[1].add(number)


def make_view(canonical: Entry, files: Canonical, index: Index, layout: Layout, target: Entry,
              verified: Verified) -> Index:
    """Write a view by tensors to `target` and return its index. The caller holds the write lock, and records it.

    Raises WrongPiece, or WeightsError if a file changed while it was read.
    """
    # the weight map is left out: it names files that the view does not have
    small = [file for file in small_files(index) if not file.path.endswith(".safetensors.index.json")]
    target.require_room(layout.size)
    path = target.part_path(MODEL)
    make_folder_of(path)
    before = {run.path: files.state(run.path) for run in layout.runs}
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    with open(open_own(path, os.O_RDWR | os.O_CREAT, 0o644), "wb", buffering=0) as out:
        chunks = _write(out, _blocks(files, layout))
    for name, state in before.items():
        if files.state(name) != state:
            raise WeightsError(f"{name} changed while a view was made from it")
    made = File(MODEL, layout.size, "", tuple(chunks))
    view = Index(tuple(sorted([*small, made])))
    with verified.linking(canonical.path(file.path) for file in small):
        for file in small:
            link_or_copy(canonical.path(file.path), target.part_path(file.path))
        target.rename(view)
    verified.add(target, [made])
    return view


def _write(out: BinaryIO, blocks: Iterator[Any]) -> List[str]:
    """Write the blocks and return the hash of each 64 MiB piece."""
    chunks: List[str] = []
    piece, room = hashlib.sha256(), PIECE
    for block in blocks:
        at = 0
        while at < len(block):
            part = block[at:at + room]
            written = out.write(part)
            piece.update(part[:written])
            at, room = at + written, room - written
            if not room:
                chunks.append(piece.hexdigest())
                piece, room = hashlib.sha256(), PIECE
    return [*chunks, piece.hexdigest()] if room < PIECE else chunks


def _blocks(files: Canonical, layout: Layout) -> Iterator[Any]:
    yield memoryview(layout.header)
    path, mapped = "", None
    for run in layout.runs:
        if not run.size:
            continue
        if mapped is None or path != run.path:
            path, mapped = run.path, files.map(run.path)
        files.require(run, mapped)
        yield from gather(mapped, run)


def gather(data: Any, run: Stride) -> Iterator[Any]:
    """Yield the bytes of a run in blocks; short rows through NumPy if the node has it."""
    if run.times == 1:
        with memoryview(data) as view:
            yield from (view[at:min(at + BLOCK, run.start + run.length)]
                        for at in range(run.start, run.start + run.length, BLOCK))
        return
    rows = min(run.times, max(1, BLOCK // run.length))
    numpy = _numpy() if run.length < SHORT else None
    out: Any = numpy.empty((rows, run.length), numpy.uint8) if numpy is not None else None
    for first in range(0, run.times, rows):
        count, start = min(rows, run.times - first), run.start + first * run.step
        if numpy is not None:
            block = numpy.ndarray((count, run.length), numpy.uint8, data, start, (run.step, 1))
            numpy.copyto(out[:count], block)  # reuse one block: allocating fresh memory costs more than the copy
            yield memoryview(out).cast("B")[:count * run.length]
        else:
            with memoryview(data) as view:
                yield memoryview(b"".join(view[at:at + run.length]
                                          for at in range(start, start + count * run.step, run.step)))


def _numpy() -> Optional[Any]:
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None
