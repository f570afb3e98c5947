"""The table of a source: states of its views, leases of its fetches, the byte budget. Pure except for its lock.

A view is pending while it is being made, ready while it can be fetched, then removed. A fetch starts only on a ready
view of an open table. Each byte sent renews its lease; it ends when it is done or its lease expires.
"""

from __future__ import annotations

import threading
from typing import Callable, Dict, Optional

MOST_FETCHES = 4
LEASE_S = 30.0
IDLE_S = 900.0
"""Seconds without a fetch after which a view made for other nodes is removed."""
PENDING, READY, DRAINING = "pending", "ready", "draining"
View = Optional[str]
"""The id of a view; None = the artifact's own files."""


class RequestRefused(Exception):
    """A refused request; `code` is absent, pending, draining, busy, noRoom or anotherEntry."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class HeldView:
    """One entry. `own` = the replica's own weights: not counted in the budget and never removed."""

    def __init__(self, size: int, own: bool, now: float) -> None:
        self.size, self.own, self.used = size, own, now
        self.state = READY if own else PENDING
        self.leases: Dict[str, float] = {}


class ViewTable:
    """The views of one source. `drop` deletes a view's files and returns whether it did; `budget` is in bytes."""

    def __init__(self, clock: Callable[[], float], budget: int, drop: Callable[[View], bool]) -> None:
        self._clock, self._budget, self._drop = clock, budget, drop
        self._entries: Dict[View, HeldView] = {}
        self._fetches: Dict[str, View] = {}
        self._lock = threading.RLock()
        self._closed = False
        self.most = 0
        """The peak number of concurrent fetches."""

    def hold(self, view: View, size: int) -> None:
        """Add the replica's own weights: ready at once and never removed."""
        with self._lock:
            self._entries[view] = HeldView(size, True, self._clock())

    def reserve(self, view: View, size: int) -> str:
        """Return `make` to the one caller that must make the view, its state to the others; raises Refused."""
        with self._lock:
            self.sweep()
            entry = self._entries.get(view)
            if self._closed:
                raise RequestRefused(DRAINING)
            if entry is not None:
                entry.used = self._clock()
                return entry.state
            self._make_room(size)
            self._entries[view] = HeldView(size, False, self._clock())
            return "make"

    def commit(self, view: View) -> None:
        """Mark a pending view as ready: it has been made."""
        with self._lock:
            entry = self._entries.get(view)
            if entry is not None and entry.state == PENDING:
                entry.state, entry.used = READY, self._clock()

    def forget(self, view: View) -> None:
        """Drop a pending view that could not be made."""
        with self._lock:
            entry = self._entries.get(view)
            if entry is not None and entry.state == PENDING:
                del self._entries[view]

    def begin(self, view: View, fetch: str) -> None:
        """Start a fetch or continue it; raises Refused if nothing may be sent."""
        with self._lock:
            self.sweep()
            if fetch in self._fetches and self._fetches[fetch] != view:
                raise RequestRefused("anotherEntry")
            entry = self._entries.get(view)
            if entry is None:
                raise RequestRefused("absent")
            if fetch not in entry.leases:
                if self._closed or entry.state != READY:
                    raise RequestRefused(DRAINING if self._closed else entry.state)
                if len(self._fetches) >= MOST_FETCHES:
                    raise RequestRefused("busy")
            self._fetches[fetch] = view
            self.most = max(self.most, len(self._fetches))
            entry.leases[fetch] = self._clock() + LEASE_S
            entry.used = self._clock()

    def sent(self, fetch: str) -> bool:
        """Renew the lease of a fetch after bytes were sent; returns whether it may continue."""
        with self._lock:
            self.sweep()
            if fetch not in self._fetches:
                return False
            self._entries[self._fetches[fetch]].leases[fetch] = self._clock() + LEASE_S
            return True

    def end(self, fetch: str) -> None:
        """End a fetch; an unknown or ended one is not an error."""
        with self._lock:
            if fetch in self._fetches:
                del self._entries[self._fetches.pop(fetch)].leases[fetch]

    def close(self) -> None:
        """Refuse new fetches; running ones continue."""
        with self._lock:
            self._closed = True

    def sweep(self) -> None:
        """End expired leases and remove views that have been idle for IDLE_S."""
        with self._lock:
            now = self._clock()
            for fetch, view in list(self._fetches.items()):
                if self._entries[view].leases[fetch] <= now:
                    self.end(fetch)
            for view, entry in list(self._entries.items()):
                if self._idle(entry) and now - entry.used >= IDLE_S:
                    self.remove(view)

    def state(self, view: View) -> Optional[str]:
        """Return the state of an entry; None = no such entry."""
        with self._lock:
            entry = self._entries.get(view)
            return entry.state if entry else None

    def _idle(self, entry: HeldView) -> bool:
        return entry.state == READY and not entry.own and not entry.leases

    def _make_room(self, size: int) -> None:
        """Remove idle views, least recently used first, until `size` more bytes fit; raises Refused."""
        over = size + sum(entry.size for entry in self._entries.values() if not entry.own) - self._budget
        idle = sorted((other for other, entry in self._entries.items() if self._idle(entry)),
                      key=lambda other: (self._entries[other].used, other or ""))
        if over > sum(self._entries[other].size for other in idle):
            raise RequestRefused("noRoom")
        for other in idle:
            if over > 0:
                over -= self.remove(other)
        if over > 0:
            raise RequestRefused("noRoom")

    def remove_if_idle(self, view: View) -> None:
        """Remove a view that was made for other nodes, unless it is being fetched."""
        with self._lock:
            entry = self._entries.get(view)
            if entry is not None and self._idle(entry):
                self.remove(view)

    def remove(self, view: View) -> int:
        """Remove an idle view and return its size; 0 = it stays, because another process on the node uses it."""
        with self._lock:
            entry = self._entries[view]
            if not self._drop(view):
                entry.used = self._clock()
                return 0
            del self._entries[view]
            return entry.size
