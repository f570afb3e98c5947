"""Spells a value that stands in no file, one of our own defaults, the way a person would write it."""

from __future__ import annotations

import json
from typing import Any

from fleetctl.documents.quantity import format_bytes, format_share
from fleetctl.review.meaning import ABSENT, Steps

_BYTES, _SHARES = frozenset({"vram", "memory", "gpuMemory"}), frozenset({"gpus", "cpus", "maxNewGpus"})
SPREAD = ("placement", "spread")
"""The one mapping that may stand in place of a text."""
_SECONDS = frozenset({"startupTimeout", "schedulingTimeout", "backoff", "period", "timeout"})


def spelled(value: object, steps: Steps) -> Any:  # noqa: ANN401  what could stand in a file
    """Return `value`, which `steps` lead to, as a file would have it; None for what no single value says."""
    key = steps[-1]
    if value is ABSENT or (isinstance(value, dict) and steps != SPREAD):
        return None
    if key in _BYTES and isinstance(value, int):
        return format_bytes(value)
    if key in _SHARES and isinstance(value, int):
        return float(format_share(value)) if value % 10_000 else value // 10_000
    if key in _SECONDS and isinstance(value, (int, float)):
        return _duration(value)
    if isinstance(value, str) and value.startswith("["):
        return json.loads(value)
    return value


def _duration(seconds: float) -> str:
    return f"{seconds / 60:g}m" if seconds >= 60 and seconds % 60 == 0 else f"{seconds:g}s"
