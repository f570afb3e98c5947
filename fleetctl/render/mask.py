"""Hides the values of engine environments: a plan that is shown must not spread what a fleet file keeps to itself."""

from __future__ import annotations

from typing import Any

MASK = "***"


def mask_env(document: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a plan document with every env value replaced by `***`, and whether that changed anything.

    A `fromNode` reference stays: it is the name of a variable, not its value.
    """
    if "specs" not in document:
        return document, False
    specs = _masked(document["specs"])
    return {**document, "specs": specs}, specs != document["specs"]


def _masked(value: object) -> object:
    if isinstance(value, list):
        return [_masked(item) for item in value]
    if isinstance(value, dict):
        return {key: _masked_env(item) if key == "env" and isinstance(item, dict) else _masked(item)
                for key, item in value.items()}
    return value


def _masked_env(env: dict[str, object]) -> dict[str, object]:
    return {name: value if isinstance(value, dict) else MASK for name, value in env.items()}
