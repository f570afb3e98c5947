"""Describes a model from its source: `config.json` and the headers of its files, no byte of a tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fleetctl.documents.model import Model
from fleetctl.sizing.architecture import ConfigError, from_config, from_gguf
from fleetctl.sizing.headers import HeaderError, Tensor, read_gguf, read_safetensors
from fleetctl.sizing.origins import MOST_FILES, MOST_INDEX, Origin, OriginError, json_object, opened
from fleetctl.sizing.parts import has_head, model_of

_INDEX, _SINGLE, _CONFIG = "model.safetensors.index.json", "model.safetensors", "config.json"
NO_VARIABLES: Mapping[str, str] = {}
_PART = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})(\.[A-Za-z0-9]+)")


class DescribeError(Exception):
    """A source is no model that can be described; the message says why."""


def describe(source: str, *, file: str | None = None, variables: Mapping[str, str] = NO_VARIABLES) -> Model:
    """Return the description of the model at `source`; raises DescribeError.

    `file` = the one of several GGUF files that is meant; `variables` = the environment, for a hub's address and token.
    """
    try:
        with opened(source, variables) as (origin, named):
            return _described(origin, file or named)
    except (OriginError, HeaderError, ConfigError, OSError) as error:
        raise DescribeError(f"{source}: {error}") from None


def _described(origin: Origin, file: str | None) -> Model:
    listed = origin.names()
    gguf = [name for name in listed or ([file] if file else []) if name.lower().endswith(".gguf")]
    if file is not None and file.lower().endswith(".gguf"):
        return _from_gguf(origin, _parts(file))
    shards = [file] if file else _shards(origin, listed)
    if not shards and gguf:
        first = [name for name in gguf if not (match := _PART.fullmatch(name)) or match[2] == "00001"]
        if len(first) > 1:
            raise OriginError(f"it has {len(first)} GGUF files: name one with --file, such as {first[0]}")
        return _from_gguf(origin, _parts(first[0]))
    if not shards:
        raise OriginError("it has no safetensors and no GGUF files")
    config = origin.small(_CONFIG)
    if config is None:
        raise OriginError(f"it has no {_CONFIG}")
    tensors: list[Tensor] = []
    for name in shards:
        found = origin.file(name)
        if found is None:
            raise OriginError(f"{name} is missing: the model is not complete")
        tensors += read_safetensors(found)
    return model_of(origin.name, _without_twice(tensors), from_config(json_object(config, _CONFIG)))


def _shards(origin: Origin, listed: list[str] | None) -> list[str]:
    """Return the names of the safetensors files that the model consists of."""
    index = origin.small(_INDEX, MOST_INDEX) if listed is None or _INDEX in listed else None
    if index is not None:
        files = json_object(index, _INDEX).get("weight_map")
        names = sorted({*files.values()}) if isinstance(files, dict) and all(
            isinstance(name, str) for name in files.values()) else []
        if not names or len(names) > MOST_FILES:
            raise OriginError(f"{_INDEX} names {len(names):,} files")
        return names
    if listed is None:
        return [_SINGLE] if origin.file(_SINGLE) else []
    if _SINGLE in listed:
        return [_SINGLE]
    return [name for name in listed if name.endswith(".safetensors") and not name.startswith("adapter")]


def _parts(name: str) -> list[str]:
    """Return the names of the files that a GGUF file in parts consists of."""
    match = _PART.fullmatch(name)
    if match is None:
        return [name]
    count = int(match[3])
    if not 0 < count <= MOST_FILES:
        raise OriginError(f"{name} would have {count:,} parts")
    return [f"{match[1]}-{number:05}-of-{match[3]}{match[4]}" for number in range(1, count + 1)]


def _from_gguf(origin: Origin, names: Sequence[str]) -> Model:
    tensors: list[Tensor] = []
    metadata = None
    for name in names:
        found = origin.file(name)
        if found is None:
            raise OriginError(f"{name} is missing: the model is not complete")
        own, stored = read_gguf(found)
        metadata = own if metadata is None else metadata
        tensors += stored
    return model_of(origin.name, _without_twice(tensors), from_gguf(metadata or {}, tied=not has_head(tensors)))


def _without_twice(tensors: list[Tensor]) -> list[Tensor]:
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            raise HeaderError(f"{tensor.name} is in two files")
        names.add(tensor.name)
    return tensors
