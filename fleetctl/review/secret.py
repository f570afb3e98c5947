"""Keeps the values of engine environments out of comparisons: two masks never say that two values are equal."""

from __future__ import annotations

from typing import Any

from fleetctl.documents.mask import MASK, masked
from fleetctl.review.meaning import Steps


def is_env(steps: Steps) -> bool:
    """Tell whether a way leads to one value of an engine's environment."""
    return len(steps) >= 3 and steps[-3:-1] == ("engine", "env")


def masked_at(steps: Steps, value: Any) -> Any:  # noqa: ANN401  any YAML value
    """Return a YAML value that `steps` lead to, with every env value in it hidden."""
    if is_env(steps):
        return value if value is None or isinstance(value, dict) else MASK
    wrapped: Any = masked({steps[-1]: value})
    return wrapped[steps[-1]]
