"""The replicas that got an artifact from a source. A busy source suggests a few of them. Pure except for its lock."""

from __future__ import annotations

import json
import re
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

MOST_KNOWN = 64
MOST_NAMED = 4
KEPT_S = 900.0
"""Seconds for which a replica is suggested: after that a plan knows it, or it is gone."""
MOST_BYTES = 4096
_ADDRESS = re.compile(r"[0-9A-Za-z.:\[\]-]{1,255}:[0-9]{1,5}")
_VIEW = re.compile(r"[0-9a-f]{16}")
Other = Dict[str, Any]
"""A source, in the form a plan uses: `replica` (for messages), `address`, `view` (None = all files), `whole`."""


class Others:
    """The latest replicas that got weights from one source."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._known: Dict[str, Tuple[Other, float]] = {}
        self._calls = 0

    def add(self, other: Other) -> None:
        """Record a replica as a source."""
        with self._lock:
            self._known.pop(other["address"], None)
            self._known[other["address"]] = other, self._clock() + KEPT_S
            for address in list(self._known)[:-MOST_KNOWN]:
                del self._known[address]

    def some(self, view: Optional[str]) -> List[Other]:
        """Return up to MOST_NAMED sources of the view, the latest first. Each call starts one further down the list."""
        with self._lock:
            now = self._clock()
            fitting = [other for other, until in reversed(list(self._known.values()))
                       if until > now and (other["whole"] or other["view"] == view)]
            first = self._calls % max(1, len(fitting))
            self._calls += 1
        return [*fitting[first:], *fitting[:first]][:MOST_NAMED]


def encoded(others: List[Other]) -> bytes:
    """Encode a message."""
    return json.dumps(others).encode()


def decoded(body: bytes) -> List[Other]:
    """Decode and validate a message; raises ValueError."""
    rows: Any = json.loads(body)
    if not isinstance(rows, list) or len(rows) > MOST_NAMED:
        raise ValueError(f"not a list of at most {MOST_NAMED} sources")
    return [_validated(row) for row in rows]


def _validated(row: Any) -> Other:
    if not isinstance(row, Mapping):
        raise ValueError("not an object")
    address, view, replica = row.get("address"), row.get("view"), " ".join(str(row.get("replica")).split())
    if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
        raise ValueError("not an address")
    if view is not None and not (isinstance(view, str) and _VIEW.fullmatch(view)):
        raise ValueError("not a view")
    return {"replica": replica[:200], "address": address, "view": view,
            "whole": view is None or row.get("whole") is True}
