"""Values of an answer by the kind that is expected there; a value of another kind counts as absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleetctl.documents.base import Moment, moment_at_ms

_MOMENT = TypeAdapter(Moment)


def text_of(value: object) -> str | None:
    """Return text that is not empty."""
    return value if isinstance(value, str) and value else None


def object_of(value: object) -> Mapping[str, Any]:
    """Return a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """Return a JSON list, else an empty one."""
    return value if isinstance(value, list) else []


def moment_of(value: object) -> str | None:
    """Return a point in time."""
    try:
        return _MOMENT.validate_python(value)
    except ValidationError:
        return None


def moment_of_ms(value: object) -> str | None:
    """Return a point in time that is given in milliseconds since the epoch; 0, and what is no time, = unknown."""
    ms = whole_of(value)
    return moment_at_ms(ms) if ms else None


def whole_of(value: object) -> int | None:
    """Return a whole number that is not negative; JSON's true is no number."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
