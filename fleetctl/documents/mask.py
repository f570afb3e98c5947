"""Secrets: the values of engine environments. The one rule for what is hidden wherever a shape is shown or logged."""

from __future__ import annotations

MASK = "***"
_ENVIRONMENT = ("engine", "env")


def is_env_value(path: tuple[str | int, ...]) -> bool:
    """Return whether a path leads to the value of one environment variable."""
    return path[-3:-1] == _ENVIRONMENT


def variable_of(path: tuple[str | int, ...]) -> str | None:
    """Return the environment variable a path is about; "" for the whole environment, None for anything else."""
    at = next((at for at in range(2, len(path) + 1) if path[at - 2 : at] == _ENVIRONMENT), None)
    return None if at is None else without_value(str(path[at])) if at < len(path) else ""


def without_value(name: str) -> str:
    """Hide the value in a NAME=VALUE that was written in place of a variable's name."""
    variable, sign, value = name.partition("=")
    return f"{variable}={MASK if value else ''}" if sign else name


def masked(value: object, path: tuple[str | int, ...] = ()) -> object:
    """Return the JSON at `path` with the values of its environment variables masked.

    A `fromNode` reference stays: it is the name of a variable, not its value.
    """
    if is_env_value(path):
        return value if value is None or isinstance(value, dict) else MASK
    if isinstance(value, list):
        return [masked(item, (*path[-2:], at)) for at, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: masked(item, (*path[-2:], key)) for key, item in value.items()}
    return value
