"""What takes the place of a secret: the values of engine environments, wherever a shape is shown or logged."""

from __future__ import annotations

MASK = "***"


def masked(value: object) -> object:
    """Return JSON with the values of every mapping called `env` masked.

    A `fromNode` reference stays: it is the name of a variable, not its value.
    """
    if isinstance(value, list):
        return [masked(item) for item in value]
    if isinstance(value, dict):
        return {key: _masked_env(item) if key == "env" and isinstance(item, dict) else masked(item)
                for key, item in value.items()}
    return value


def _masked_env(env: dict[str, object]) -> dict[str, object]:
    return {name: value if isinstance(value, dict) else MASK for name, value in env.items()}
