"""One YAML scalar as text: plain where every YAML reader takes it as it is meant, otherwise in quotes and escaped."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from yaml import ScalarNode
from yaml.resolver import Resolver

from fleetctl.render.visible import visible
from fleetctl.spec.nodes import Node, Value
from fleetctl.spec.scalars import resolve_plain

_PLAIN = re.compile(r"(?!-(?: |$))[A-Za-z0-9_./$(+~^-][A-Za-z0-9_./$()+@~^%=:;!'* -]*(?<![ :])")
_TEXT_TAG = "tag:yaml.org,2002:str"
_RESOLVER: Any = Resolver()  # the stubs leave its arguments untyped
_YES_OR_NO = ("y", "Y", "n", "N")  # booleans of YAML 1.1 that PyYAML leaves alone


def scalar_text(node: Node) -> str:
    """Return a scalar: numbers and booleans as they were written, text by `text_scalar`."""
    if node.value is None:
        return "null"
    return text_scalar(node.value) if isinstance(node.value, str) else node.raw


@lru_cache(maxsize=4096)
def text_scalar(text: str) -> str:
    """Return text on one line, for block and flow collections alike; what a terminal would obey is escaped."""
    if _PLAIN.fullmatch(text) and ": " not in text and " #" not in text and _is_text_to_all(text):
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


def _is_text_to_all(text: str) -> bool:
    """Tell whether neither our reader nor one of YAML 1.1 would take plain text for something else (`on`, `12:30`)."""
    try:
        ours = resolve_plain(text)
    except ValueError:
        return False
    theirs = _RESOLVER.resolve(ScalarNode, text, (True, False))
    return isinstance(ours, str) and theirs == _TEXT_TAG and text not in _YES_OR_NO
