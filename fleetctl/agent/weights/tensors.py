"""The header of a safetensors file: the position of each tensor. A file that contradicts its header is refused."""

from __future__ import annotations

import json
import math
from typing import Any, BinaryIO, Dict, List, NamedTuple, Tuple

from .index import WeightsError

MOST_HEADER = 100 << 20
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64, "F64": 64, "F32": 32,
    "F16": 16, "BF16": 16, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8, "C64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}


class Tensor(NamedTuple):
    """A tensor in a file. `start` = its offset in the file, `size` = its length, both in bytes."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    start: int
    size: int


def read_header(file: BinaryIO, file_size: int) -> List[Tensor]:
    """Return the tensors of a safetensors file, sorted by offset; raises WeightsError."""
    length = int.from_bytes(file.read(8), "little")
    if file_size < 8 or not 2 <= length <= min(MOST_HEADER, file_size - 8):
        raise WeightsError(f"it declares a header of {length} bytes, but the file has {file_size}")
    try:
        entries = json.loads(file.read(length).decode(), object_pairs_hook=_unique_keys)
        entries.pop("__metadata__", None)
        tensors = [_tensor(name, entry, 8 + length) for name, entry in entries.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WeightsError(f"its header cannot be read ({error.__class__.__name__}: {error})") from None
    tensors.sort(key=lambda tensor: (tensor.start, tensor.size))
    at = 8 + length
    for tensor in tensors:
        if tensor.start != at:
            raise WeightsError(f"{tensor.name} begins at byte {tensor.start}; the tensor before it ends at {at}")
        at += tensor.size
    if at != file_size:
        raise WeightsError(f"its tensors end at byte {at}, but the file has {file_size}")
    return tensors


def _unique_keys(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name appears twice")
    return entries


def _tensor(name: str, entry: Dict[str, Any], data: int) -> Tensor:
    shape, (begin, end) = entry["shape"], entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError(f"{name}: shape and offsets must be whole numbers")
    bits = BITS.get(entry["dtype"])
    if bits is None:
        raise ValueError(f"{name}: unknown dtype {entry['dtype']!r}")
    if bits * math.prod(shape) != 8 * (end - begin):
        raise ValueError(f"{name}: {entry['dtype']} of shape {shape} does not take {end - begin} bytes")
    return Tensor(name, entry["dtype"], tuple(shape), data + begin, end - begin)


def header_of(tensors: List[Tuple[str, str, Tuple[int, ...], int]]) -> bytes:
    """Encode the header of a file that holds these tensors (name, dtype, shape, size) in this order."""
    entries, at = {}, 0
    for name, dtype, shape, size in tensors:
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
