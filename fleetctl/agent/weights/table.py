"""What a source holds, and who fetches it: the states of views, leases, the byte budget. Pure but for its lock.

A view is pending while it is made, ready while it may be fetched, and gone. Once the table is closed nothing begins.
A fetch begins only on what is ready, keeps its lease by bytes that were sent, and ends by its end or by its time.
"""

from __future__ import annotations

import threading
from typing import Callable, Dict, Optional

MOST_FETCHES = 4
LEASE_S = 30.0
IDLE_S = 900.0
"""How long a view that was made for others stays without a fetch."""
PENDING, READY, DRAINING = "pending", "ready", "draining"


View = Optional[str]
"""A view of the artifact by its id; None = the artifact's own files."""


class Refused(Exception):
    """Not now or not at all: absent, pending, draining, busy, noRoom or anotherEntry."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Held:
    """One entry. `own` = the replica's own weights, which no budget counts and no pressure removes."""

    def __init__(self, size: int, own: bool, now: float) -> None:
        self.size, self.own, self.used = size, own, now
        self.state = READY if own else PENDING
        self.leases: Dict[str, float] = {}


class Table:
    """The views of one source. `drop` removes a view's bytes and returns whether it did."""

    def __init__(self, clock: Callable[[], float], budget: int, drop: Callable[[View], bool]) -> None:
        self._clock, self._budget, self._drop = clock, budget, drop
        self._entries: Dict[View, Held] = {}
        self._fetches: Dict[str, View] = {}
        self._lock = threading.RLock()
        self._closed = False
        self.most = 0
        """The most fetches that were under way at a time."""

    def hold(self, view: View, size: int) -> None:
        """Add the replica's own weights: ready, and for good."""
        with self._lock:
            self._entries[view] = Held(size, True, self._clock())

    def reserve(self, view: View, size: int) -> str:
        """Return `make` for the one caller that has to make a view, else its state; raises Refused."""
        with self._lock:
            self.sweep()
            entry = self._entries.get(view)
            if self._closed:
                raise Refused(DRAINING)
            if entry is not None:
                entry.used = self._clock()
                return entry.state
            self._make_room(size)
            self._entries[view] = Held(size, False, self._clock())
            return "make"

    def commit(self, view: View) -> None:
        """Turn a view that has been made from pending to ready."""
        with self._lock:
            entry = self._entries.get(view)
            if entry is not None and entry.state == PENDING:
                entry.state, entry.used = READY, self._clock()

    def forget(self, view: View) -> None:
        """Forget a view that could not be made."""
        with self._lock:
            entry = self._entries.get(view)
            if entry is not None and entry.state == PENDING:
                del self._entries[view]

    def begin(self, view: View, fetch: str) -> None:
        """Begin a fetch, or go on with it; raises Refused, and then not a byte may be sent."""
        with self._lock:
            self.sweep()
            if fetch in self._fetches and self._fetches[fetch] != view:
                raise Refused("anotherEntry")
            entry = self._entries.get(view)
            if entry is None:
                raise Refused("absent")
            if fetch not in entry.leases:
                if self._closed or entry.state != READY:
                    raise Refused(DRAINING if self._closed else entry.state)
                if len(self._fetches) >= MOST_FETCHES:
                    raise Refused("busy")
            self._fetches[fetch] = view
            self.most = max(self.most, len(self._fetches))
            entry.leases[fetch] = self._clock() + LEASE_S
            entry.used = self._clock()

    def sent(self, fetch: str) -> bool:
        """Renew a fetch by bytes that were sent; returns whether it may go on."""
        with self._lock:
            self.sweep()
            if fetch not in self._fetches:
                return False
            self._entries[self._fetches[fetch]].leases[fetch] = self._clock() + LEASE_S
            return True

    def end(self, fetch: str) -> None:
        """End a fetch; one that is unknown or over is no error."""
        with self._lock:
            if fetch in self._fetches:
                self._entries[self._fetches.pop(fetch)].leases.pop(fetch, None)

    def close(self) -> None:
        """Let nobody begin any more; who fetches goes on."""
        with self._lock:
            self._closed = True

    def sweep(self) -> None:
        """End leases and idle views whose time is over."""
        with self._lock:
            now = self._clock()
            for fetch, view in list(self._fetches.items()):
                if self._entries[view].leases[fetch] <= now:
                    self.end(fetch)
            for view, entry in list(self._entries.items()):
                if self._idle(entry) and now - entry.used >= IDLE_S:
                    self.remove(view)

    def state(self, view: View) -> Optional[str]:
        """Return the state of an entry, None = there is none."""
        with self._lock:
            entry = self._entries.get(view)
            return entry.state if entry else None

    def _idle(self, entry: Held) -> bool:
        return entry.state == READY and not entry.own and not entry.leases

    def _make_room(self, size: int) -> None:
        """Remove idle views until `size` bytes more fit, the longest unused first."""
        over = size + sum(entry.size for entry in self._entries.values() if not entry.own) - self._budget
        idle = sorted((other for other, entry in self._entries.items() if self._idle(entry)),
                      key=lambda other: (self._entries[other].used, other or ""))
        if over > sum(self._entries[other].size for other in idle):
            raise Refused("noRoom")
        for other in idle:
            if over > 0:
                over -= self.remove(other)
        if over > 0:
            raise Refused("noRoom")

    def remove(self, view: View) -> int:
        """Remove an idle view and return its bytes; 0 = another process of the node uses it, so it stays."""
        with self._lock:
            entry = self._entries[view]
            if not self._drop(view):
                entry.used = self._clock()
                return 0
            del self._entries[view]
            return entry.size
