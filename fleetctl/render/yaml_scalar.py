"""One YAML scalar as text: plain where every YAML reader takes it as it is meant, otherwise in quotes and escaped."""

from __future__ import annotations

import re
from functools import lru_cache

from fleetctl.fleetfile.nodes import Node, Value
from fleetctl.fleetfile.plain_text import is_text_to_all
from fleetctl.render.visible import visible

_PLAIN = re.compile(r"(?!-(?: |$))[A-Za-z0-9_./$(+~^-][A-Za-z0-9_./$()+@~^%=:;!'* -]*(?<![ :])")


def scalar_text(node: Node) -> str:
    """Return a scalar: numbers and booleans as they were written, text by `text_scalar`."""
    if node.value is None:
        return "null"
    return text_scalar(node.value) if isinstance(node.value, str) else node.raw


@lru_cache(maxsize=4096)
def text_scalar(text: str) -> str:
    """Return text on one line, for block and flow collections alike; what a terminal would obey is escaped."""
    if _PLAIN.fullmatch(text) and ": " not in text and " #" not in text and is_text_to_all(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{visible(escaped)}"'


def block_text(value: Value) -> str | None:
    """Return text of several lines as a literal block, indented by two; None where it is better or safer in quotes."""
    if not isinstance(value, str) or "\n" not in value.rstrip("\n"):
        return None
    body = value.removesuffix("\n")
    lines = body.split("\n")
    if any(not line.isprintable() or line != line.strip(" ") for line in (lines[0], lines[-1])):
        return None
    if not lines[0] or not lines[-1] or not all(line.isprintable() for line in lines):
        return None
    return "\n".join(["|" if body != value else "|-", *(f"  {line}" if line else "" for line in lines)])
