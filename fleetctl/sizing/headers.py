"""Reads the headers of safetensors and GGUF files: names, types and shapes of tensors, never a byte of one.

Whatever a header says of itself is a claim: lengths, counts and offsets are compared with the size of the file, and
with each other, before anything is made of them.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

MOST_HEADER = 64 << 20
MOST_TENSORS = 1 << 18
"""Of one file: twice as many as the largest models have in all their files."""
MOST_DIMENSIONS = 16
FIRST = 8
"""Bytes of the first read of a file: those that tell the length of a safetensors header."""
MOST_SHOWN = 100
MOST_VALUES = 1 << 22
"""Values of a JSON text: four times those of a file with a tensor for each expert of the largest models."""
STEP, EXACT_READS = 1 << 20, 100
"""A GGUF header does not say how long it is, so no more is read than it must still have: 20 to 40 reads. A header that
takes many more is read in larger steps."""

SAFETENSORS_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "C64": 64,
}
"""Bits of an element, by https://github.com/huggingface/safetensors/blob/main/safetensors/src/tensor.rs."""

GGUF_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}
"""Name, elements and bytes of a block, by https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h."""

_GGUF_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_GGUF_STRING, _GGUF_ARRAY = 8, 9
MOST_ITEMS = 1 << 21
_KEPT_ITEMS, _KEPT_IN_ALL = 4_096, 1 << 18
"""Longer arrays of a GGUF file, such as its vocabulary, are skipped."""
_LEAST_PAIR, _LEAST_TENSOR, _LEAST_TEXT, _LEAST_ARRAY = 13, 24, 8, 12
"""Bytes that a value with its key, a tensor, a text and an array have at least in a GGUF header."""


class HeaderError(Exception):
    """A header cannot be what it says; the message names the file."""


@dataclass(frozen=True, slots=True)
class RangedFile:
    """A file of which ranges can be read. `read(begin, count)` returns at most `count` bytes; it raises HeaderError."""

    name: str
    size: int
    read: Callable[[int, int], bytes]


class Tensor(NamedTuple):
    """One tensor of a file; `size` = its stored bytes."""

    name: str
    type: str
    shape: tuple[int, ...]
    size: int


def shown(value: object) -> str:
    """Return a value from outside for a message, cut off if it is long."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def parse_json(text: bytes, *, in_pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:  # noqa: ANN401
    """Return what a JSON text says; raises ValueError, also for one that would take many times its size in memory.

    `in_pairs` makes a mapping of the keys and values of one.
    """
    if sum(text.count(sign) for sign in (b",", b"[", b"{")) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")
    try:
        return json.loads(text, object_pairs_hook=in_pairs)
    except RecursionError:
        raise ValueError("it is too deep") from None


def _require_no_pointer(file: RangedFile, start: bytes) -> None:
    if b"version https://git-lfs."[:len(start)] == start and len(start) >= 4:
        raise HeaderError(f"{file.name} is a pointer of Git LFS, not the file itself: run `git lfs pull` in its "
                          "repository")


def read_safetensors(file: RangedFile) -> list[Tensor]:
    """Return the tensors of a safetensors file; raises HeaderError.

    The format: https://github.com/huggingface/safetensors#format.
    """
    start = file.read(0, FIRST)
    length = int.from_bytes(start, "little")
    _require_no_pointer(file, start)
    if len(start) < 8 or not 2 <= length <= file.size - 8:
        raise HeaderError(f"{file.name} is no safetensors file: its header would have {length:,} of {file.size:,} "
                          "bytes")
    if length > MOST_HEADER:
        raise HeaderError(f"{file.name}: its header has {length:,} bytes, and at most {MOST_HEADER:,} are read")
    text = file.read(8, length)
    if len(text) < length:
        raise HeaderError(f"{file.name} ends within its header")
    try:
        entries = parse_json(text, in_pairs=_without_twice)
        entries.pop("__metadata__", None)
        if len(entries) > MOST_TENSORS:
            raise ValueError(f"{len(entries):,} tensors")
        tensors = [_safetensor(file.name, name, entry) for name, entry in entries.items()]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise HeaderError(f"{file.name}: its header cannot be read ({error.__class__.__name__}: {shown(str(error))})"
                          ) from None
    end = 0
    for begins, ends, tensor in sorted(tensors):
        if begins != end or ends - begins != tensor.size:
            raise HeaderError(f"{file.name}: {shown(tensor.name)} has bytes {shown(begins)} to {shown(ends)}, and its "
                              f"type and shape ask for {shown(tensor.size)} from {end:,}")
        end = ends
    if 8 + length + end != file.size:
        raise HeaderError(f"{file.name} has {file.size:,} bytes, and {8 + length + end:,} by its header")
    return [tensor for _, _, tensor in tensors]


def _without_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(fields := dict(pairs)) != len(pairs):
        raise ValueError("a name stands there twice")
    return fields


def _safetensor(file: str, name: str, entry: dict[str, Any]) -> tuple[int, int, Tensor]:
    """Return the tensor of one entry, and where its bytes begin and end."""
    shape, bits = entry["shape"], SAFETENSORS_BITS.get(entry["dtype"])
    if bits is None:
        raise HeaderError(f"{file}: {shown(name)} has the unknown type {shown(entry['dtype'])}")
    if len(shape) > MOST_DIMENSIONS or not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
        raise ValueError(f"the shape of {name}")
    begins, ends = entry["data_offsets"]
    if type(begins) is not int or type(ends) is not int:
        raise ValueError(f"the offsets of {name}")
    return begins, ends, Tensor(name, entry["dtype"], tuple(shape), -(-math.prod(shape) * bits // 8))


def read_gguf(file: RangedFile) -> tuple[dict[str, Any], list[Tensor]]:
    """Return the metadata of a GGUF file (without long arrays) and its tensors; raises HeaderError.

    The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
    """
    header = _Gguf(file)
    header.rest = 20
    if (magic := header.take(4)) != b"GGUF":
        _require_no_pointer(file, magic)
        raise HeaderError(f"{file.name} is no GGUF file")
    version = struct.unpack("<I", header.take(4))[0]
    if version > 1 << 16:
        header.order = ">"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if not 2 <= version <= 3:
        raise HeaderError(f"{file.name} has version {version} of the format, which is not known here")
    count, pairs = header.number("Q"), header.number("Q")
    if max(count, pairs) > MOST_TENSORS:
        raise HeaderError(f"{file.name} would have {count:,} tensors and {pairs:,} values")
    metadata: dict[str, Any] = {}
    for left in reversed(range(pairs)):
        header.rest = left * _LEAST_PAIR + count * _LEAST_TENSOR
        key = header.text()
        if key in metadata:
            raise HeaderError(f"{file.name}: its header has {shown(key)} twice")
        metadata[key] = header.value(header.number("I"))
    tensors = list(header.tensors(count))
    _require_apart(file, tensors, metadata.get("general.alignment", 32), header.at)
    return metadata, [tensor for _, tensor in tensors]


def _require_apart(file: RangedFile, tensors: list[tuple[int, Tensor]], alignment: object, header: int) -> None:
    """Raise HeaderError unless the tensors lie behind each other and within the file, behind the `header`."""
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
        raise HeaderError(f"{file.name} would align its tensors to {shown(alignment)} bytes")
    data = -(-header // alignment) * alignment
    end = 0
    for begins, tensor in sorted(tensors):
        if begins < end:
            raise HeaderError(f"{file.name}: {shown(tensor.name)} lies over another tensor")
        end = begins + tensor.size
    if tensors and data + end > file.size:
        raise HeaderError(f"{file.name} has {file.size:,} bytes, and {data + end:,} by its header")


class _Gguf:
    """The header of a GGUF file. `rest` = the bytes that it must have behind the value that is read."""

    def __init__(self, file: RangedFile) -> None:
        self._file, self.at, self.order, self.rest = file, 0, "<", 0
        self._buffer, self._begin, self._reads, self._kept = b"", 0, 0, 0

    def tensors(self, count: int) -> Iterator[tuple[int, Tensor]]:
        for left in reversed(range(count)):
            self.rest = left * _LEAST_TENSOR
            name, dimensions = self.text(), self.number("I")
            if dimensions > MOST_DIMENSIONS:
                raise HeaderError(f"{self._file.name}: {shown(name)} would have {dimensions} dimensions")
            shape = tuple(self.number("Q") for _ in range(dimensions))
            kind, begins = self.number("I"), self.number("Q")
            if kind not in GGUF_TYPES:
                raise HeaderError(f"{self._file.name}: {shown(name)} has the unknown type {kind}")
            type_name, elements, size = GGUF_TYPES[kind]
            if math.prod(shape) > 1 << 50 or math.prod(shape) % elements:
                raise HeaderError(f"{self._file.name}: {shown(name)} has a shape that its type {type_name} cannot have")
            yield begins, Tensor(name, type_name, tuple(reversed(shape)), math.prod(shape) // elements * size)

    def value(self, kind: int, depth: int = 0) -> Any:  # noqa: ANN401  whatever the file has
        if kind == _GGUF_STRING:
            return self.text()
        if kind in _GGUF_NUMBERS:
            return self.number(_GGUF_NUMBERS[kind])
        if kind != _GGUF_ARRAY or depth > 4:
            raise HeaderError(f"{self._file.name}: its header has a value of the unknown type {kind}")
        of, count = self.number("I"), self.number("Q")
        self._kept += count
        is_kept = count <= _KEPT_ITEMS and self._kept <= _KEPT_IN_ALL
        if of in _GGUF_NUMBERS and not is_kept:
            self.skip(count * struct.calcsize(f"={_GGUF_NUMBERS[of]}"))
            return None
        if self._kept > MOST_ITEMS:
            raise HeaderError(f"{self._file.name}: its header has a list of {count:,} values")
        least = _LEAST_TEXT if of == _GGUF_STRING else _LEAST_ARRAY if of == _GGUF_ARRAY else 1
        items, rest = [], self.rest
        for left in reversed(range(count)):
            self.rest = rest + left * least
            if of == _GGUF_STRING and not is_kept:
                self.skip(self.number("Q"))
            else:
                items.append(self.value(of, depth + 1))
        self.rest = rest
        return items if is_kept else None

    def text(self) -> str:
        return self.take(self.number("Q")).decode(errors="replace")

    def number(self, kind: str) -> Any:  # noqa: ANN401  an int, float or bool, as `kind` says
        return struct.unpack(f"{self.order}{kind}", self.take(struct.calcsize(f"={kind}")))[0]

    def skip(self, count: int) -> None:
        self.at = self._end_of(count)

    def take(self, count: int) -> bytes:
        end = self._end_of(count)
        if end > self._begin + len(self._buffer):
            known = self._buffer[max(0, self.at - self._begin):]
            begin = self.at + len(known)
            self._reads += 1
            ahead = self.rest if self._reads <= EXACT_READS else max(self.rest, STEP)
            more = self._file.read(begin, min(self._file.size, MOST_HEADER, end + ahead) - begin)
            self._buffer, self._begin = known + more, self.at
            if len(self._buffer) < count:
                raise HeaderError(f"{self._file.name} ends within its header")
        begin, self.at = self.at - self._begin, end
        return self._buffer[begin:begin + count]

    def _end_of(self, count: int) -> int:
        end = self.at + count
        if end > min(self._file.size, MOST_HEADER):
            raise HeaderError(f"{self._file.name} ends within its header" if end > self._file.size else
                              f"{self._file.name}: its header has more than {MOST_HEADER:,} bytes")
        return end
