"""Values as a person would write them in a fleet file."""

from __future__ import annotations

import json
from typing import Any

from fleetctl.documents.quantity import format_bytes, format_share
from fleetctl.review.meaning import ABSENT, Steps

_BYTES, _SHARES = frozenset({"vram", "memory", "gpuMemory", "warm"}), frozenset({"gpus", "cpus", "maxNewGpus"})
_SECONDS = frozenset({"startupTimeout", "schedulingTimeout", "backoff", "period", "timeout"})
WITH_TWO_FORMS = frozenset({("placement", "spread"), ("placement", "sameLabel")})
"""Where a mapping may be written in place of a text."""


def format_value(value: object, steps: Steps) -> Any:  # noqa: ANN401  any YAML value
    """Return `value`, which `steps` lead to, as a file would have it; None where no single value would say it."""
    key = steps[-1]
    if value is ABSENT or (isinstance(value, dict) and steps not in WITH_TWO_FORMS):
        return None
    if key in _BYTES and isinstance(value, int):
        return format_bytes(value)
    if key in _SHARES and isinstance(value, int):
        return float(format_share(value)) if value % 10_000 else value // 10_000
    if key in _SECONDS and isinstance(value, (int, float)):
        return f"{value / 60:g}m" if value >= 60 and value % 60 == 0 else f"{value:g}s"
    if isinstance(value, str) and value.startswith("["):
        return json.loads(value)
    return value
