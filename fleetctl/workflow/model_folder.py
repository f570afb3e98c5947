"""What a folder must not have to be indexed as a model: files that are no model, incomplete, or missing.

An index says that all nodes get the same files, not that these are a model. Sizes in headers are claims of a file: they
are compared with its real size before anything is read by them.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from fleetctl.agent.weights.index import paths_in, real_path

UNFINISHED = (".part", ".partial", ".incomplete", ".tmp", ".aria2", ".crdownload", ".download")
"""Endings of files that a download leaves behind when it is interrupted."""
LFS_POINTER = re.compile(rb"version https://(git-lfs|hawser)\.")
MAX_HEADER_BYTES, MAX_LIST_BYTES = 256 << 20, 64 << 20
"""The most bytes that a header, and a list of shards, may have: a hundred times those of the largest models."""
TORCH, ZIP = (".bin", ".pt", ".pth", ".ckpt"), b"PK\x03\x04"
MAX_NAMED = 500
MAX_COUNTED = 100_000
"""Beyond so many missing files no more are searched for: each file's name may say that there are 99,999."""
_PART = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})(\.[A-Za-z0-9]+)")
_GGUF_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of each type of a GGUF value, except strings (8) and arrays (9)."""
_GGUF_STRING, _GGUF_ARRAY = 8, 9
MAX_DIMENSIONS = 16
"""The most dimensions of a GGUF tensor: four times those that llama.cpp allows."""
_GGUF_TENSORS = {
    0: 1024, 1: 512, 2: 144, 3: 160, 6: 176, 7: 192, 8: 272, 10: 84, 11: 110, 12: 144, 13: 176, 14: 210, 15: 292,
    16: 66, 17: 74, 18: 98, 19: 50, 20: 144, 21: 110, 22: 82, 23: 136, 24: 256, 25: 512, 26: 1024, 27: 2048,
    28: 2048, 29: 56, 30: 512, 34: 54, 35: 66, 39: 136,
}
"""Bytes of 256 elements of each type of a GGUF tensor. Of other types, only the beginning is known to be there."""


class _Refused(Exception):
    """A file cannot be part of a model; the message says why, and what to do."""

    def __init__(self, problem: str, advice: str = "download it again") -> None:
        super().__init__(f"{problem}; {advice}")


def problems_of(folder: Path) -> list[str]:
    """Return every reason not to index a folder, each with the file and what to do; raises OSError."""
    paths, problems = sorted(paths_in(str(folder))), list[str]()
    for path in paths:
        try:
            _require_whole(folder, path)
        except _Refused as refused:
            problems.append(f"{path}: {refused}")
    return [*problems, *_missing(folder, paths)]


def _require_whole(folder: Path, path: str) -> None:
    """Raise _Refused unless a file is complete, as far as its name and its header show that."""
    real = Path(real_path(str(folder), path) or "")
    if not real.name:
        raise _Refused("a link that leaves the folder", "copy the file there; from a cache of Hugging Face, index the "
                       "folder snapshots/<revision>, or use `hf download --local-dir`")
    if not os.path.lexists(real):
        raise _Refused("a link to a file that does not exist")
    if not real.is_file():
        raise _Refused("not a regular file", "remove it")
    name = path.lower()
    if name.endswith(UNFINISHED):
        raise _Refused("left by an interrupted download", "finish the download, or remove it")
    with real.open("rb") as file:
        size, start = os.fstat(file.fileno()).st_size, file.read(64)
        file.seek(0)
        if not size and not name.endswith(".py"):
            raise _Refused("empty", "download it again, or remove it")
        if LFS_POINTER.match(start):
            raise _Refused("a pointer of Git LFS, not the file itself", "run `git lfs pull` in its repository")
        if name.endswith(".safetensors"):
            _require_tensors(file, size)
        elif name.endswith(".gguf"):
            _Gguf(file, size).require_whole()
        elif name.endswith(TORCH) and start.startswith(ZIP) and not zipfile.is_zipfile(file):
            raise _Refused("its end is missing")


def _require_tensors(file: BinaryIO, size: int) -> None:
    """Raise _Refused unless the file has exactly the bytes that its header says."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= length <= MAX_HEADER_BYTES:
        raise _Refused(f"not a safetensors file: its header would have {length} bytes")
    if length > size - 8:
        raise _Refused(f"its header has {length} bytes, but the file only {size}")
    try:
        tensors: dict[str, Any] = json.loads(file.read(length))
        end = max((int(tensor["data_offsets"][1]) for name, tensor in tensors.items() if name != "__metadata__"),
                  default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise _Refused("its header cannot be read") from None
    if 8 + length + end != size:
        raise _Refused(f"it has {size} bytes, but by its header {8 + length + end}")


class _Gguf:
    """The header of a GGUF file: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size

    def require_whole(self) -> None:
        """Raise _Refused if the file ends before its last tensor."""
        if self._take(4) != b"GGUF":
            raise _Refused("not a GGUF file")
        order = "<" if int.from_bytes(self._take(4), "little") < 1 << 16 else ">"
        tensors, pairs = struct.unpack(f"{order}QQ", self._take(16))
        self._order = order
        alignment, end = 32, 0
        for _ in range(pairs):
            key, kind = self._string(), self._number(4)
            value = self._value(kind)
            alignment = value if key == b"general.alignment" and value else alignment
        for _ in range(tensors):
            self._string()
            dimensions = self._number(4)
            if dimensions > MAX_DIMENSIONS:  # the product of millions of sizes would take days
                raise _Refused("its header cannot be read")
            shape = [self._number(8) for _ in range(dimensions)]
            kind, begin = self._number(4), self._number(8)
            end = max(end, begin + max(1, math.prod(shape) * _GGUF_TENSORS.get(kind, 0) // 256))
        end += -(-self._file.tell() // alignment) * alignment if end else 0
        if end > self._size:
            raise _Refused(f"it has {self._size} bytes, but by its header {end}")

    def _value(self, kind: int, depth: int = 0) -> int:
        """Read past a value; return it if it is a whole number of 4 bytes, else 0."""
        if kind == _GGUF_STRING:
            self._string()
        elif kind == _GGUF_ARRAY and depth < 8:
            of, count = self._number(4), self._number(8)
            if of in _GGUF_SIZES:
                self._skip(_GGUF_SIZES[of] * count)
            else:
                for _ in range(count):
                    self._value(of, depth + 1)
        elif kind in _GGUF_SIZES:
            return self._number(4) if kind == 4 else self._skip(_GGUF_SIZES[kind])
        else:
            raise _Refused("its header cannot be read")
        return 0

    def _string(self) -> bytes:
        return self._take(self._number(8))

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little" if self._order == "<" else "big")

    def _take(self, size: int) -> bytes:
        self._require(size)
        return self._file.read(size)

    def _skip(self, size: int) -> int:
        self._require(size)
        self._file.seek(size, os.SEEK_CUR)
        return 0

    def _require(self, size: int) -> None:
        end = self._file.tell() + size
        if end > self._size:
            raise _Refused(f"it has {self._size} bytes, and ends within its header")
        if end > MAX_HEADER_BYTES:
            raise _Refused(f"its header has more than {MAX_HEADER_BYTES >> 20} MiB")


def _missing(folder: Path, paths: Sequence[str]) -> Iterator[str]:
    """Yield the shards that a list of shards, or the number in another shard's name, says that there are."""
    there, missing, series = set(paths), dict[str, str](), dict[tuple[str, str, str], str]()
    for path in paths:
        if path.endswith(".index.json") and len(missing) <= MAX_COUNTED:
            try:
                missing.update({shard: path for shard in _listed(folder, path) if shard not in there})
            except (ValueError, RecursionError):
                yield f"{path}: it cannot be read as JSON; download it again"
        if (part := _PART.fullmatch(path)) and 0 < int(part[2]) <= int(part[3]):
            series.setdefault((part[1], part[3], part[4]), path)
    for (start, total, end), path in series.items():
        if len(missing) > MAX_COUNTED:
            break
        shards = [f"{start}-{number:05}-of-{total}{end}" for number in range(1, int(total) + 1)]
        missing.update({shard: missing.get(shard, path) for shard in shards if shard not in there})
    for shard, path in sorted(missing.items())[:MAX_NAMED]:
        yield f"{shard}: missing, but {path} says that it belongs to the model; download it"
    if len(missing) > MAX_NAMED:
        least = "at least " if len(missing) > MAX_COUNTED else ""
        yield f"{least}{len(missing) - MAX_NAMED} more files: missing; download them"


def _listed(folder: Path, path: str) -> list[str]:
    """Return the shards in a list of shards, as paths in the folder; raises ValueError."""
    real = Path(real_path(str(folder), path) or "")
    if not real.is_file():
        return []
    if real.stat().st_size > MAX_LIST_BYTES:
        raise ValueError("too large")
    content = json.loads(real.read_bytes())
    names = content.get("weight_map") if isinstance(content, dict) else None
    return sorted({str(PurePosixPath(path).parent / str(name)) for name in names.values()}
                  ) if isinstance(names, dict) else []
