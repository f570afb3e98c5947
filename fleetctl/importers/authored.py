"""Turns a recorded shape back into the form a person would write: amounts and durations as text, nothing else changed.

The result means exactly what was recorded, so its spec hash is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from fleetctl.documents.fleet import ModelDefaults, Restart
from fleetctl.documents.quantity import BINARY_UNITS, share_number
from fleetctl.documents.record import Lifecycle

_UNITS = (("h", 3600), ("m", 60), ("s", 1))


def authored_workers(shape: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the worker groups of a recorded shape; errors in it are left for validation."""
    return [_authored(group) for group in shape.get("workers", [])]


def authored_lifecycle(lifecycle: Lifecycle, priority: int) -> dict[str, Any]:
    """Return priority, timeouts and restarts that differ from the defaults of the fleet file."""
    values = ModelDefaults.model_construct(
        priority=priority, startup_timeout=lifecycle.startup_timeout, scheduling_timeout=lifecycle.scheduling_timeout,
        restart=Restart.model_construct(max=lifecycle.restart_max, backoff=lifecycle.restart_backoff))
    written: dict[str, Any] = _authored(values.model_dump(by_alias=True, exclude_defaults=True))
    return written


def authored_resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return integer resources (1/10000 of a card or CPU, bytes) as numbers and quantities, cards first."""
    usual = {name: resources[name] for name in ("gpus", "vram", "cpus", "memory") if name in resources}
    return {name: _AMOUNTS[name](amount) if name in _AMOUNTS else amount
            for name, amount in {**usual, **resources}.items()}


def bytes_text(count: int) -> str | int:
    """Return bytes as an exactly equal quantity."""
    for unit, size in BINARY_UNITS:
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return count


def duration_text(seconds: float) -> str:
    """Return seconds as an exactly equal duration: `15m`, `90s`, `0.2s`."""
    exact = Decimal(repr(seconds))
    for unit, size in _UNITS:
        if exact and exact % size == 0:
            return f"{int(exact) // size}{unit}"
    return f"{exact.normalize():f}s"


def _authored(value: Any, key: str = "") -> Any:  # noqa: ANN401 (any part of a shape, under its key)
    if isinstance(value, list):
        return [_authored(item) for item in value]
    if key == "resources":
        return authored_resources(value)
    if isinstance(value, Mapping) and key not in _VERBATIM:
        return {name: _authored(item, name) for name, item in value.items()}
    return duration_text(value) if key in _DURATIONS else value


_AMOUNTS: Mapping[str, Callable[[int], object]] = {
    "gpus": share_number, "cpus": share_number, "vram": bytes_text, "memory": bytes_text}
_DURATIONS = ("period", "timeout", "startupTimeout", "schedulingTimeout", "backoff")
_VERBATIM = ("env", "nodeSelector")
