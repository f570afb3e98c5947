"""A view of an artifact: the files, or the parts of tensors, that one member needs. Pure: no I/O of its own.

`files` selects whole files by name, `tensors` whole tensors by name, `shard` a rank's part of each tensor. The last two
produce one dense `model.safetensors`. Every view keeps the small files that are not weights.

No `from __future__ import annotations` here: `parse` reads the types of fields.
"""

import fnmatch
import hashlib
import itertools
import json
import math
import re
from typing import Any, BinaryIO, Dict, List, Mapping, NamedTuple, Optional, Pattern, Sequence, Tuple, Union

from ..wire import document_of, parse
from .index import File, Index, WeightsError

MODEL = "model.safetensors"
WEIGHTS = (".safetensors", ".bin", ".pt")
VERSION = 1
MOST_HEADER = 100 << 20
MOST_PATTERNS = 10_000
_RANKS = "$(FLEETCTL_RANKS)"
_BRACES_OR_RANKS = re.compile(r"\{[^{}]*\}|\$\$|" + re.escape(_RANKS))
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64, "F64": 64, "F32": 32,
    "F16": 16, "BF16": 16, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8, "C64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}


class Rule(NamedTuple):
    """The tensors whose names match a regular expression are split along the dimension `dim`."""

    match: str
    dim: int = 0


class Shard(NamedTuple):
    """What to split, by the first matching rule, and into how many parts; None = the size of the group."""

    rules: Sequence[Rule]
    of: Union[str, int, None] = None


class View(NamedTuple):
    """One of `files` (a pattern), `tensors` (a regular expression) and `shard`, with its variables replaced."""

    files: Optional[str] = None
    tensors: Optional[str] = None
    shard: Optional[Shard] = None


class Tensor(NamedTuple):
    """A tensor in a file. `start` = its offset in the file, `size` = its length, both in bytes."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    start: int
    size: int


class Stride(NamedTuple):
    """A strided range of a file: `times` blocks of `length` bytes, the first at `start`, then every `step` bytes."""

    path: str
    start: int
    length: int
    step: int = 0
    times: int = 1

    @property
    def size(self) -> int:
        """Bytes in all blocks together."""
        return self.length * self.times


class Layout(NamedTuple):
    """The weight file of a view: its header, then the runs in order."""

    header: bytes
    runs: Tuple[Stride, ...]

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return len(self.header) + sum(run.size for run in self.runs)


def with_a_pattern_per_rank(view: Any) -> Any:
    """Return a view as written, its variables not yet replaced: the ranks in `files` become one pattern for each."""
    if not isinstance(view, Mapping):
        return view
    return {kind: _BRACES_OR_RANKS.sub(lambda found: "{%s}" % _RANKS if found[0] == _RANKS else found[0], written)
            if kind == "files" and isinstance(written, str) else written for kind, written in view.items()}


def read_view(document: Any) -> Optional[View]:
    """Return the view that a plan or a receiver describes, its variables replaced; raises WrongDocument."""
    return parse(View, document) if document else None


def view_id(view: Optional[View], rank: int, size: int, index: str) -> Optional[str]:
    """Return the id of a view of the artifact `index`; None if the view is the whole artifact.

    A single shard is the whole artifact. Views that ignore the rank share one id.
    """
    if view is None or view == View() or view.files in {"*", "**"} or view.tensors == ".*":
        return None
    normal: List[Any] = [VERSION, index, sorted(document_of(view).items())]
    if view.shard:
        of = shards_of(view.shard, size)
        if of == 1 or not view.shard.rules:
            return None
        normal = [VERSION, index, "shard", view.shard.rules, rank, of]
    return hashlib.sha256(json.dumps(normal, separators=(",", ":")).encode()).hexdigest()[:16]


def shards_of(shard: Shard, size: int) -> int:
    """Return how many parts a shard view has: its `of`, by default the group's `size`."""
    try:
        of = size if shard.of is None else int(shard.of)
    except ValueError:
        raise WeightsError(f"of: {shard.of!r} is not a number") from None
    if of < 1:
        raise WeightsError(f"of: must be at least 1, not {of}")
    return of


def small_files(index: Index) -> Tuple[File, ...]:
    """Return the files that are not weights."""
    return tuple(file for file in index.files if not file.path.endswith(WEIGHTS))


def files_view(index: Index, pattern: str) -> Index:
    """Return the index of a view by file names; the pattern may have lists of alternatives, `{a,b}`."""
    parts = [part.split(",") if number % 2 else [part]
             for number, part in enumerate(re.split(r"\{([^{}]*)\}", pattern))]
    if math.prod(map(len, parts)) > MOST_PATTERNS:
        raise WeightsError(f"{pattern} stands for more than {MOST_PATTERNS} patterns")
    patterns = ["".join(pattern) for pattern in itertools.product(*parts)]
    chosen = [file for file in index.files if file.path.endswith(WEIGHTS) and any(
        fnmatch.fnmatchcase(name, pattern) for name in (file.path, file.path.split("/")[-1]) for pattern in patterns)]
    if not chosen:
        raise WeightsError(f"no weight file of the artifact matches {pattern}")
    return Index(tuple(sorted([*chosen, *small_files(index)])))


def read_header(file: BinaryIO, file_size: int) -> List[Tensor]:
    """Return the tensors of a safetensors file, sorted by offset; raises WeightsError."""
    length = int.from_bytes(file.read(8), "little")
    if file_size < 8 or not 2 <= length <= min(MOST_HEADER, file_size - 8):
        raise WeightsError(f"it declares a header of {length} bytes, but the file has {file_size}")
    try:
        entries = json.loads(file.read(length).decode(), object_pairs_hook=_unique_keys)
        tensors = [_tensor(name, entry, 8 + length) for name, entry in entries.items() if name != "__metadata__"]
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


def _tensor(name: str, entry: Any, data: int) -> Tensor:
    dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError(f"{name}: shape and offsets must be whole numbers")
    bits = BITS.get(dtype)
    if bits is None:
        raise ValueError(f"{name}: unknown dtype {dtype!r}")
    if bits * math.prod(shape) != 8 * (end - begin):
        raise ValueError(f"{name}: {dtype} of shape {shape} does not take {end - begin} bytes")
    return Tensor(name, dtype, tuple(shape), data + begin, end - begin)


def header_of(tensors: List[Tuple[str, str, Tuple[int, ...], int]]) -> bytes:
    """Encode the header of a file that holds these tensors (name, dtype, shape, size) in this order."""
    entries, at = {}, 0
    for name, dtype, shape, size in tensors:
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def tensor_view(headers: Mapping[str, Sequence[Tensor]], view: View, rank: int, size: int) -> Layout:
    """Return the layout of a view by tensors; `headers` = the tensors in each file of the artifact."""
    names = [tensor.name for tensors in headers.values() for tensor in tensors]
    if len(set(names)) != len(names):
        raise WeightsError("a tensor is in more than one file")
    if view.tensors is not None:
        wanted = _pattern(view.tensors)
        parts = [(tensor, tensor.shape, Stride(path, tensor.start, tensor.size)) for path, tensor in _all(headers)
                 if wanted.search(tensor.name)]
    elif view.shard is None:
        raise WeightsError("a view by files is not made of tensors")
    else:
        of = shards_of(view.shard, size)
        if not 0 <= rank < of:
            raise WeightsError(f"rank {rank} has no part: the shard has {of}")
        rules = [(_pattern(rule.match), rule.dim) for rule in view.shard.rules]
        parts = [(tensor, *_part(path, tensor, _dim(tensor, rules), rank, of)) for path, tensor in _all(headers)]
    if not parts:
        raise WeightsError("no tensor of the artifact matches the view")
    parts.sort(key=lambda part: -BITS[part[0].dtype])  # stable; readers need each tensor aligned to its element size
    header = header_of([(tensor.name, tensor.dtype, shape, run.size) for tensor, shape, run in parts])
    return Layout(header, tuple(run for _, _, run in parts))


def _all(headers: Mapping[str, Sequence[Tensor]]) -> List[Tuple[str, Tensor]]:
    return [(path, tensor) for path in sorted(headers) for tensor in headers[path]]


def _pattern(text: str) -> Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise WeightsError(f"{text!r} is not a regular expression: {error}") from None


def _dim(tensor: Tensor, rules: Sequence[Tuple[Pattern[str], int]]) -> Optional[int]:
    """Return the dimension that the first matching rule splits; None = the tensor stays whole."""
    dim = next((dim for pattern, dim in rules if pattern.search(tensor.name)), None)
    if dim is None:
        return None
    if not -len(tensor.shape) <= dim < len(tensor.shape):
        raise WeightsError(f"{tensor.name} has {len(tensor.shape)} dimensions and no dim {dim}")
    return dim % len(tensor.shape)


def _part(path: str, tensor: Tensor, dim: Optional[int], rank: int, of: int) -> Tuple[Tuple[int, ...], Stride]:
    """Return the shape and bytes of a rank's part: narrow(dim, rank * length / of, length / of)."""
    if dim is None or of == 1:
        return tensor.shape, Stride(path, tensor.start, tensor.size)
    if tensor.shape[dim] % of:
        raise WeightsError(f"{tensor.name}: the {tensor.shape[dim]} rows of dim {dim} are not divisible by {of}")
    shape = (*tensor.shape[:dim], tensor.shape[dim] // of, *tensor.shape[dim + 1:])
    outer = math.prod(tensor.shape[:dim])
    step = tensor.size // outer if outer else 0
    if step * 8 % of or step % of:
        raise WeightsError(f"{tensor.name}: {of} parts do not begin at whole bytes")
    length = step // of
    start = tensor.start + rank * length
    return shape, Stride(path, start, length, step, outer) if outer > 1 else Stride(path, start, length)
