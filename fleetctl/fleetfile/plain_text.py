"""Whether text needs no quotes: neither we nor a reader of YAML 1.1 read it as another value."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from yaml import ScalarNode
from yaml.resolver import Resolver

from fleetctl.fleetfile.scalars import resolve_plain

_TEXT_TAG = "tag:yaml.org,2002:str"
_RESOLVER: Any = Resolver()  # the stubs leave its arguments untyped
_YES_OR_NO = ("y", "Y", "n", "N")  # booleans of YAML 1.1 that PyYAML leaves alone


@lru_cache(maxsize=4096)
def is_text_to_all(text: str) -> bool:
    """Return whether every reader takes a plain scalar as this text; some read `on` and `12:30` as other values."""
    try:
        ours = resolve_plain(text)
    except ValueError:
        return False
    theirs = _RESOLVER.resolve(ScalarNode, text, (True, False))
    return isinstance(ours, str) and bool(theirs == _TEXT_TAG) and text not in _YES_OR_NO
