"""Patterns of model keys: `meta-llama/*`."""

from __future__ import annotations

from fnmatch import fnmatchcase


def matches_pattern(pattern: str, key: str) -> bool:
    """Tell whether `pattern` names a model: it is the key, or matches it.

    Only `*` is special, since `?` and `[` may stand in keys; upper and lower case differ, as they do in keys.
    """
    return pattern == key or fnmatchcase(key, "".join(f"[{char}]" if char in "?[" else char for char in pattern))
