"""Masks secrets wherever a shape is shown or logged: values of engine environments, bodies of requests to engines."""

from __future__ import annotations

MASK = "***"
_ENVIRONMENT = ("engine", "env")
_BODY = ("reload", "http", "body")


def is_env_value(path: tuple[str | int, ...]) -> bool:
    """Return whether a path leads to the value of one environment variable."""
    return path[-3:-1] == _ENVIRONMENT


def is_secret(path: tuple[str | int, ...]) -> bool:
    """Return whether a path leads to a masked value: of an environment variable, or in the body of a request."""
    return is_env_value(path) or any(path[at : at + 3] == _BODY for at in range(len(path) - 2))


def variable_of(path: tuple[str | int, ...]) -> str | None:
    """Return the environment variable a path is about; "" for the whole environment, None for anything else."""
    at = next((at for at in range(2, len(path) + 1) if path[at - 2 : at] == _ENVIRONMENT), None)
    return None if at is None else without_value(str(path[at])) if at < len(path) else ""


def without_value(name: str) -> str:
    """Mask the value of a NAME=VALUE that was written instead of a variable's name."""
    variable, sign, value = name.partition("=")
    return f"{variable}={MASK if value else ''}" if sign else name


def masked(value: object, path: tuple[str | int, ...] = ()) -> object:
    """Return the JSON value at `path` with environment values and request bodies masked.

    A `fromNode` reference stays: it is the name of a variable, not its value.
    """
    if is_env_value(path):
        return value if value is None or isinstance(value, dict) else MASK
    if is_secret(path) and not isinstance(value, (dict, list)):
        return None if value is None else MASK
    above = _BODY if is_secret(path) else path[-2:]
    if isinstance(value, list):
        return [masked(item, (*above, at)) for at, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: masked(item, (*above, key)) for key, item in value.items()}
    return value
