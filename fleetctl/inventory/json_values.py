"""Values of an answer by their expected type; a value of another type counts as absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleetctl.documents.base import Moment, moment_at

_MOMENT = TypeAdapter(Moment)


def text_of(value: object) -> str | None:
    """Return non-empty text, else None."""
    return value if isinstance(value, str) and value else None


def object_of(value: object) -> Mapping[str, Any]:
    """Return a JSON object, else an empty object."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """Return a JSON list, else an empty list."""
    return value if isinstance(value, list) else []


def texts_of(value: object) -> list[str]:
    """Return the strings in a JSON list."""
    return [text for text in list_of(value) if isinstance(text, str)]


def moment_of(value: object) -> str | None:
    """Return a moment in RFC 3339, else None."""
    try:
        return _MOMENT.validate_python(value)
    except ValidationError:
        return None


def moment_of_ms(value: object) -> str | None:
    """Return the moment of a time in milliseconds since the epoch; None if it is 0, which means unknown."""
    ms = value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
    try:
        return moment_at(ms / 1000) if ms > 0 else None
    except (OverflowError, ValueError):  # out of the range of dates
        return None


def whole_of(value: object) -> int | None:
    """Return a non-negative integer of 63 bits, else None; JSON's `true` is not a number."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None
