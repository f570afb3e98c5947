"""Describes a model from its source: `config.json` and the headers of its files, no byte of a tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pydantic import ValidationError

from fleetctl.documents.model import Description
from fleetctl.sizing.architecture import ConfigError, from_config, from_gguf
from fleetctl.sizing.headers import HeaderError, RangedFile, Tensor, read_gguf, read_safetensors, shown
from fleetctl.sizing.origins import (
    MODEL_FILES,
    MOST_FILES,
    MOST_INDEX,
    Origin,
    OriginError,
    json_object,
    opened,
    without_secrets,
)
from fleetctl.sizing.parts import has_head, model_of

_INDEX, _SINGLE, _CONFIG = "model.safetensors.index.json", "model.safetensors", "config.json"
NO_VARIABLES: Mapping[str, str] = {}
_PART = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})(\.[A-Za-z0-9]+)")
_PART_IN_INDEX = re.compile(rb'"(model(?:\.safetensors)?-[0-9]{5}-of-[0-9]{5}\.safetensors)"')
_FIRST_OF_INDEX = 1 << 16
MOST_OF_NAME = 255
READERS = 8
Read = TypeVar("Read")
Progress = Callable[[int, int], None]
"""Told how many of the files have been read, and how many there are."""


class DescribeError(Exception):
    """A source is no model that can be described; the message says why."""


def describe(source: str, *, file: str | None = None, variables: Mapping[str, str] = NO_VARIABLES,
             progress: Progress = lambda _read, _of: None) -> Description:
    """Return the description of the model at `source`; raises DescribeError.

    `file` = the one of several GGUF files that is meant; `variables` = the environment, for a hub's address and token.
    """
    try:
        with opened(source, variables) as (origin, named):
            return _described(origin, file or named, progress)
    except (OriginError, HeaderError, ConfigError) as error:
        named = without_secrets(source)
        raise DescribeError(str(error) if str(error).startswith(named) else f"{named}: {error}") from None
    except OSError as error:
        raise DescribeError(f"{error.filename or source} cannot be read: {error.strerror or error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DescribeError(f"{without_secrets(source)}: it is no model that can be described: {where}: {first['msg']}"
                            ) from None


def _described(origin: Origin, file: str | None, progress: Progress) -> Description:
    if file is not None and not file.lower().endswith(MODEL_FILES):
        raise OriginError(f"{shown(file)} is neither a safetensors nor a GGUF file")
    listed = origin.names()
    gguf = [name for name in listed or ([file] if file else []) if name.lower().endswith(".gguf")]
    if file is not None and file.lower().endswith(".gguf"):
        return _from_gguf(origin, _parts(file), progress)
    shards = [file] if file else _shards(origin, listed)
    if not shards and gguf:
        first = [name for name in gguf if not (match := _PART.fullmatch(name)) or match[2] == "00001"]
        if len(first) > 1:
            raise OriginError(f"it has {len(first)} GGUF files: name one with --file, such as {shown(first[0])}")
        return _from_gguf(origin, _parts(first[0] if first else gguf[0]), progress)
    if not shards and listed is None:
        raise OriginError(f"it has no {_SINGLE} and no {_INDEX}, and a folder over HTTP cannot be listed: name its "
                          "GGUF file, or its fleetctl-weights.json")
    if not shards:
        raise OriginError("it has no safetensors and no GGUF files")
    config = origin.small(_CONFIG)
    if config is None:
        raise OriginError(f"it has no {_CONFIG}")
    tensors = [tensor for read in _each(origin, shards, read_safetensors, progress) for tensor in read]
    return model_of(origin.name, _without_twice(tensors), from_config(json_object(config, _CONFIG)))


def _shards(origin: Origin, listed: list[str] | None) -> list[str]:
    """Return the names of the safetensors files that the model consists of."""
    if listed is not None:
        usual = next((name for name in listed if (part := _PART.fullmatch(name)) and part[2] == "00001"
                      and part[1] in ("model", _SINGLE) and part[4] == ".safetensors"), None)
        if usual is not None and (_INDEX not in listed or {*_parts(usual)} <= {*listed}):
            return _parts(usual)  # what the list of shards says, too, which may have many MiB
    elif (there := origin.file(_INDEX)) is None:
        return [_SINGLE] if origin.file(_SINGLE) else []
    elif one := _PART_IN_INDEX.search(there.read(0, min(there.size, _FIRST_OF_INDEX))):
        return _parts(one[1].decode())
    if (index := origin.small(_INDEX, MOST_INDEX)) is not None:
        files = json_object(index, _INDEX).get("weight_map")
        names = sorted({*files.values()}) if isinstance(files, dict) and all(
            isinstance(name, str) for name in files.values()) else []
        if not names or len(names) > MOST_FILES:
            raise OriginError(f"{_INDEX} names {len(names):,} files")
        for name in names:
            if "/" in name or name.startswith(".") or not name.isprintable() or len(name.encode()) > MOST_OF_NAME:
                raise OriginError(f"{_INDEX}: {shown(name)} is not the name of a file beside it")
        return names
    if listed is None or _SINGLE in listed:
        return [_SINGLE]
    return [name for name in listed if name.endswith(".safetensors") and not name.startswith("adapter")
            and "/" not in name]


def _parts(name: str) -> list[str]:
    """Return the names of the files that a GGUF file in parts consists of."""
    match = _PART.fullmatch(name)
    if match is None:
        return [name]
    count = int(match[3])
    if not 0 < count <= MOST_FILES:
        raise OriginError(f"{name} would have {count:,} parts")
    return [f"{match[1]}-{number:05}-of-{match[3]}{match[4]}" for number in range(1, count + 1)]


def _there(origin: Origin, name: str) -> RangedFile:
    """Return a file that the model consists of; raises OriginError."""
    found = origin.file(name)
    if found is None:
        raise OriginError(f"{shown(name)} is missing: the model is not complete")
    return found


def _each(origin: Origin, names: Sequence[str], read: Callable[[RangedFile], Read], progress: Progress) -> list[Read]:
    """Return what `read` finds in each file, several at a time: a model may have hundreds on a distant server."""
    pool, found = ThreadPoolExecutor(READERS), list[Read]()
    try:
        for reading in [pool.submit(lambda name: read(_there(origin, name)), name) for name in names]:
            found.append(reading.result())
            progress(len(found), len(names))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # what still waits for an answer ends with the connections
    return found


def _from_gguf(origin: Origin, names: Sequence[str], progress: Progress) -> Description:
    parts = _each(origin, names, read_gguf, progress)
    metadata, tensors = parts[0][0], [tensor for _, stored in parts for tensor in stored]
    return model_of(f"{origin.name}/{names[0]}", _without_twice(tensors),  # a folder has files of several quantizations
                    from_gguf(metadata, tied=not has_head(tensors)))


def _without_twice(tensors: list[Tensor]) -> list[Tensor]:
    names: set[str] = set()
    if not tensors:
        raise HeaderError("its files have no tensors")
    for tensor in tensors:
        if tensor.name in names:
            raise HeaderError(f"{shown(tensor.name)} is in two files")
        names.add(tensor.name)
    return tensors
