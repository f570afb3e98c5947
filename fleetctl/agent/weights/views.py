"""A view of an artifact: the files, or the parts of tensors, that one member needs. Pure: no I/O.

`files` selects whole files by name, `tensors` whole tensors by name, `shard` a rank's part of each tensor. The last two
produce one dense `model.safetensors`. Every view keeps the small files that are not weights.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import math
import re
from typing import Any, List, Mapping, NamedTuple, Optional, Pattern, Sequence, Tuple

from .index import File, Index, WeightsError
from .tensors import BITS, Tensor, header_of

MODEL = "model.safetensors"
WEIGHTS = (".safetensors", ".bin", ".pt")
VERSION = 1


class Run(NamedTuple):
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
    runs: Tuple[Run, ...]

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return len(self.header) + sum(run.size for run in self.runs)


def view_id(view: Optional[Mapping[str, Any]], rank: int, size: int, index: str) -> Optional[str]:
    """Return the id of a view of the artifact `index`; None if the view is the whole artifact.

    `view` has its variables replaced. A single shard is the whole artifact. Views that ignore the rank share one id.
    """
    if not view or view.get("files") in {"*", "**"} or view.get("tensors") == ".*":
        return None
    normal: List[Any] = [VERSION, index, sorted(view.items())]
    if "shard" in view:
        of = shards_of(view, size)
        rules = [[rule["match"], int(rule.get("dim", 0))] for rule in view["shard"]["rules"]]
        if of == 1 or not rules:
            return None
        normal = [VERSION, index, "shard", rules, rank, of]
    return hashlib.sha256(json.dumps(normal, separators=(",", ":")).encode()).hexdigest()[:16]


def shards_of(view: Mapping[str, Any], size: int) -> int:
    """Return how many parts a shard view has: its `of`, by default the group's `size`."""
    try:
        of = int(view["shard"].get("of", size))
    except ValueError:
        raise WeightsError(f"of: {view['shard']['of']!r} is not a number") from None
    if of < 1:
        raise WeightsError(f"of: must be at least 1, not {of}")
    return of


def small_files(index: Index) -> Tuple[File, ...]:
    """Return the files that are not weights."""
    return tuple(file for file in index.files if not file.path.endswith(WEIGHTS))


def files_view(index: Index, pattern: str) -> Index:
    """Return the index of a view by file names."""
    chosen = [file for file in index.files if file.path.endswith(WEIGHTS)
              and (fnmatch.fnmatchcase(file.path, pattern) or fnmatch.fnmatchcase(file.path.split("/")[-1], pattern))]
    if not chosen:
        raise WeightsError(f"no weight file of the artifact matches {pattern}")
    return Index(tuple(sorted([*chosen, *small_files(index)])))


def tensor_view(headers: Mapping[str, Sequence[Tensor]], view: Mapping[str, Any], rank: int, size: int) -> Layout:
    """Return the layout of a view by tensors; `headers` = the tensors in each file of the artifact."""
    names = [tensor.name for tensors in headers.values() for tensor in tensors]
    if len(set(names)) != len(names):
        raise WeightsError("a tensor is in more than one file")
    if "tensors" in view:
        wanted = _pattern(view["tensors"])
        parts = [(tensor, tensor.shape, Run(path, tensor.start, tensor.size)) for path, tensor in _all(headers)
                 if wanted.search(tensor.name)]
    else:
        of = shards_of(view, size)
        if not 0 <= rank < of:
            raise WeightsError(f"rank {rank} has no part: the shard has {of}")
        rules = [(_pattern(rule["match"]), int(rule.get("dim", 0))) for rule in view["shard"]["rules"]]
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


def _part(path: str, tensor: Tensor, dim: Optional[int], rank: int, of: int) -> Tuple[Tuple[int, ...], Run]:
    """Return the shape and bytes of a rank's part: narrow(dim, rank * length / of, length / of)."""
    if dim is None or of == 1:
        return tensor.shape, Run(path, tensor.start, tensor.size)
    if tensor.shape[dim] % of:
        raise WeightsError(f"{tensor.name}: the {tensor.shape[dim]} rows of dim {dim} are not divisible by {of}")
    shape = (*tensor.shape[:dim], tensor.shape[dim] // of, *tensor.shape[dim + 1:])
    outer = math.prod(tensor.shape[:dim])
    step = tensor.size // outer if outer else 0
    if step * 8 % of or step % of:
        raise WeightsError(f"{tensor.name}: {of} parts do not begin at whole bytes")
    length = step // of
    start = tensor.start + rank * length
    return shape, Run(path, start, length, step, outer) if outer > 1 else Run(path, start, length)
