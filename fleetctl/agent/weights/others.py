"""Who else has what a source serves: those that got it there. A source that is busy names a few of them. Pure but for
its lock.
"""

from __future__ import annotations

import json
import re
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

MOST_KNOWN = 64
MOST_NAMED = 4
KEPT_S = 900.0
"""How long one is named: by then a plan knows it, or it is gone."""
MOST_BYTES = 4096
_ADDRESS = re.compile(r"[0-9A-Za-z.:\[\]-]{1,255}:[0-9]{1,5}")
_VIEW = re.compile(r"[0-9a-f]{16}")
Other = Dict[str, Any]
"""As a plan names a source: `replica` for people, `address`, `view` (None = all files), `whole`."""


class Others:
    """The latest that have got something from one source."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._known: Dict[str, Tuple[Other, float]] = {}
        self._asked = 0

    def add(self, other: Other) -> None:
        """Note that one has it now."""
        with self._lock:
            self._known.pop(other["address"], None)
            self._known[other["address"]] = other, self._clock() + KEPT_S
            for address in list(self._known)[:-MOST_KNOWN]:
                del self._known[address]

    def some(self, view: Optional[str]) -> List[Other]:
        """Return a few that have the view or all files, the latest first; each call begins at another one."""
        with self._lock:
            now = self._clock()
            found = [one for one, until in reversed(list(self._known.values()))
                     if until > now and (one["whole"] or one["view"] == view)]
            at = self._asked % max(1, len(found))
            self._asked += 1
        return [*found[at:], *found[:at]][:MOST_NAMED]


def encoded(others: List[Other]) -> bytes:
    """Return how they travel."""
    return json.dumps(others).encode()


def decoded(body: bytes) -> List[Other]:
    """Return the others of a message; raises ValueError where it is none."""
    found: Any = json.loads(body)
    if not isinstance(found, list) or len(found) > MOST_NAMED:
        raise ValueError("not a few others")
    return [_checked(one) for one in found]


def _checked(one: Any) -> Other:
    if not isinstance(one, Mapping):
        raise ValueError("not an object")
    address, view, replica = one.get("address"), one.get("view"), " ".join(str(one.get("replica")).split())
    if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
        raise ValueError("no address")
    if view is not None and not (isinstance(view, str) and _VIEW.fullmatch(view)):
        raise ValueError("no view")
    return {"replica": replica[:200], "address": address, "view": view,
            "whole": view is None or one.get("whole") is True}
