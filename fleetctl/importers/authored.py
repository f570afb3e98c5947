"""A recorded shape back as a person would write it: amounts and durations as text, nothing added and nothing left out.

The result means exactly what was recorded, so its spec hash is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from fleetctl.documents.fleet import ModelDefaults
from fleetctl.documents.quantity import share_number
from fleetctl.documents.record import Lifecycle

_SIZES = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_SPANS = (("h", 3600), ("m", 60), ("s", 1))


def authored_workers(shape: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the worker groups of a recorded shape; what is wrong in it is left for validation."""
    return [_authored(group) for group in shape.get("workers", [])]


def authored_lifecycle(lifecycle: Lifecycle, priority: int) -> dict[str, Any]:
    """Return priority, timeouts and restarts where they are not the defaults of the fleet file."""
    defaults = ModelDefaults()
    restart = {"max": lifecycle.restart_max, "backoff": duration_text(lifecycle.restart_backoff)}
    usual = {"max": defaults.restart.max, "backoff": duration_text(defaults.restart.backoff)}
    values = {
        "priority": (priority, defaults.priority),
        "startupTimeout": (duration_text(lifecycle.startup_timeout), duration_text(defaults.startup_timeout)),
        "schedulingTimeout": (duration_text(lifecycle.scheduling_timeout), duration_text(defaults.scheduling_timeout)),
    }
    written: dict[str, Any] = {name: value for name, (value, default) in values.items() if value != default}
    changed = {name: value for name, value in restart.items() if value != usual[name]}
    return {**written, **({"restart": changed} if changed else {})}


def authored_resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return resources in integers of 1/10000 and bytes as numbers of cards and CPUs, and quantities, cards first."""
    usual = {name: resources[name] for name in ("gpus", "vram", "cpus", "memory") if name in resources}
    return {name: _AMOUNTS[name](amount) if name in _AMOUNTS else amount
            for name, amount in {**usual, **resources}.items()}


def bytes_text(count: int) -> str | int:
    """Return bytes as a quantity that means exactly as many."""
    for unit, size in _SIZES:
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return count


def duration_text(seconds: float) -> str:
    """Return seconds as a duration that means exactly as long: `15m`, `90s`, `0.2s`."""
    exact = Decimal(repr(seconds))
    for unit, size in _SPANS:
        if exact and exact % size == 0:
            return f"{int(exact) // size}{unit}"
    return f"{exact.normalize():f}s"


def _authored(value: Any, key: str = "") -> Any:  # noqa: ANN401 (any part of a shape, under its key)
    if isinstance(value, list):
        return [_authored(item) for item in value]
    if key == "resources":
        return authored_resources(value)
    if isinstance(value, Mapping) and key not in _AS_THEY_ARE:
        return {name: _authored(item, name) for name, item in value.items()}
    return duration_text(value) if key in _DURATIONS else value


_AMOUNTS: Mapping[str, Callable[[int], object]] = {
    "gpus": share_number, "cpus": share_number, "vram": bytes_text, "memory": bytes_text}
_DURATIONS = ("period", "timeout")
_AS_THEY_ARE = ("env", "nodeSelector")
