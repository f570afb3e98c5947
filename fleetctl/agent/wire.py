"""The documents of messages.py and run_messages.py: JSON to and from values, once, on arrival; arguments of actors."""

from __future__ import annotations

import json
import zlib
from typing import Any, Dict, List, Mapping, Sequence, Type, TypeVar, Union, get_args, get_origin

PART = 64 << 10
"""Ray keeps arguments below 100 KiB each with an actor, 10 MiB in all."""
LARGEST = 1 << 63
"""JSON may have integers for which there is no float."""
Value = TypeVar("Value")


class WrongDocument(ValueError):
    """A document does not have the form that this release knows; the message names the part."""


def parse(kind: Type[Value], document: Any) -> Value:
    """Return the document as a value of this NamedTuple; raises WrongDocument. Unknown keys are ignored."""
    found: Value = _read(kind, document, kind.__name__)
    return found


def document_of(value: Any) -> Any:
    """Return the JSON of a value. A field that is None by default is left out while it is None."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        defaults: Mapping[str, Any] = getattr(value, "_field_defaults", {})
        return {_key(name): document_of(part) for name, part in zip(value._fields, value)
                if part is not None or defaults.get(name, "") is not None}
    if isinstance(value, Mapping):
        return {key: document_of(part) for key, part in value.items()}
    return [document_of(part) for part in value] if isinstance(value, (list, tuple)) else value


def in_parts(value: Any) -> List[bytes]:
    """Return a value as the constructor arguments of an actor, each small enough for Ray to keep with the actor.

    A longer argument stays with the job that created the actor. That job ends, and a restart would not find it.
    """
    data = zlib.compress(json.dumps(document_of(value)).encode())
    return [data[at:at + PART] for at in range(0, len(data), PART)]


def from_parts(kind: Type[Value], parts: Sequence[bytes]) -> Value:
    """Return the value that `in_parts` has split."""
    return parse(kind, json.loads(zlib.decompress(b"".join(parts))))


def _key(field: str) -> str:
    first, *more = field.rstrip("_").split("_")
    return first + "".join(map(str.capitalize, more))


def _read(kind: Any, value: Any, path: str) -> Any:
    """Return a JSON value as `kind`: a NamedTuple, a plain type, or a list, mapping or alternative of those."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Union:  # of text and a NamedTuple, or of one kind and None
        kinds = [kind for kind in inner if kind is not type(None)]
        is_none = value is None and len(kinds) < len(inner)
        return None if is_none else _read(str if isinstance(value, str) and str in kinds else kinds[-1], value, path)
    if hasattr(kind, "_fields") and isinstance(value, Mapping):
        return _read_fields(kind, value, path)
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {str(key): _read(inner[1], part, f"{path}.{key}") for key, part in value.items()}
    if origin is not None and not issubclass(origin, Mapping) and isinstance(value, (list, tuple)):
        return tuple(_read(inner[0], part, f"{path}[{index}]") for index, part in enumerate(value))
    if kind is float and type(value) is int and abs(value) < LARGEST:
        return float(value)
    if kind is Any or type(value) is kind:
        return value
    raise WrongDocument(f"{path} is {type(value).__name__}, which this release does not read")  # it may be a secret


def _read_fields(kind: Any, value: Mapping[str, Any], path: str) -> Any:
    found: Dict[str, Any] = {}
    for name, annotation in kind.__annotations__.items():
        key = _key(name)
        part, may_be_none = value.get(key), type(None) in get_args(annotation)
        if part is not None or (key in value and may_be_none):
            found[name] = _read(annotation, part, f"{path}.{key}")
        elif name not in kind._field_defaults:
            if not may_be_none:
                raise WrongDocument(f"{path} has no {key}")
            found[name] = None
    return kind(**found)
