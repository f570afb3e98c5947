"""What a source holds, and who fetches it: the states of views, leases, the byte budget. Pure but for its lock.

A view is pending while it is made, ready while it may be fetched, draining when nobody may begin any more, and gone.
A fetch begins only on what is ready, keeps its lease by bytes that were sent, and ends by its end or by its time.
"""

from __future__ import annotations

import threading
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

MOST_FETCHES = 4
LEASE_S = 30.0
IDLE_S = 900.0
"""How long a view that was made for others stays without a fetch."""
PENDING, READY, DRAINING = "pending", "ready", "draining"


class Key(NamedTuple):
    """One residency on the disk: `view` None = the artifact's own files."""

    artifact: str
    view: Optional[str]


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
    """The entries of one source. `drop` removes a view's bytes and returns whether it did."""

    def __init__(self, clock: Callable[[], float], budget: int, drop: Callable[[Key], bool]) -> None:
        self._clock, self._budget, self._drop = clock, budget, drop
        self._entries: Dict[Key, Held] = {}
        self._fetches: Dict[str, Key] = {}
        self._lock = threading.RLock()
        self._closed = False
        self.most = 0
        """The most fetches that were under way at a time."""

    def hold(self, key: Key, size: int) -> None:
        """Add the replica's own weights: ready, and for good."""
        with self._lock:
            self._entries[key] = Held(size, True, self._clock())

    def reserve(self, key: Key, size: int) -> str:
        """Return `make` for the one caller that has to make a view, else its state; raises Refused."""
        with self._lock:
            self.sweep()
            entry = self._entries.get(key)
            if self._closed or (entry is not None and entry.state == DRAINING):
                raise Refused("draining")
            if entry is not None:
                entry.used = self._clock()
                return entry.state
            self._make_room(key, size)
            self._entries[key] = Held(size, False, self._clock())
            return "make"

    def commit(self, key: Key) -> None:
        """Turn a view that has been made from pending to ready."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.state == PENDING:
                entry.state, entry.used = READY, self._clock()

    def forget(self, key: Key) -> None:
        """Forget a view that could not be made."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.state == PENDING:
                del self._entries[key]

    def begin(self, key: Key, fetch: str) -> None:
        """Begin a fetch, or go on with it; raises Refused, and then not a byte may be sent."""
        with self._lock:
            self.sweep()
            if fetch in self._fetches and self._fetches[fetch] != key:
                raise Refused("anotherEntry")
            entry = self._entries.get(key)
            if entry is None:
                raise Refused("absent")
            if fetch not in entry.leases:
                if entry.state != READY or self._closed:
                    raise Refused(DRAINING if self._closed else entry.state)
                if len(self._fetches) >= MOST_FETCHES:
                    raise Refused("busy")
            self._fetches[fetch] = key
            self.most = max(self.most, len(self._fetches))
            entry.leases[fetch] = self._clock() + LEASE_S
            entry.used = self._clock()

    def sent(self, fetch: str) -> bool:
        """Renew a fetch by bytes that were sent; returns whether it may go on."""
        with self._lock:
            self.sweep()
            key = self._fetches.get(fetch)
            if key is None:
                return False
            self._entries[key].leases[fetch] = self._clock() + LEASE_S
            return True

    def end(self, fetch: str) -> None:
        """End a fetch; one that is unknown or over is no error."""
        with self._lock:
            key = self._fetches.pop(fetch, None)
            if key is not None:
                self._entries[key].leases.pop(fetch, None)
                self._retire(key)

    def drain(self, key: Optional[Key] = None) -> None:
        """Let nobody begin any more on one view, or on anything; who fetches goes on."""
        with self._lock:
            self._closed = self._closed or key is None
            entry = self._entries.get(key) if key is not None else None
            if key is not None and entry is not None and entry.state == READY and not entry.own:
                entry.state = DRAINING
                self._retire(key)

    def sweep(self) -> None:
        """End leases and idle views whose time is over."""
        with self._lock:
            now = self._clock()
            for fetch, key in list(self._fetches.items()):
                if self._entries[key].leases[fetch] <= now:
                    self.end(fetch)
            for key, entry in list(self._entries.items()):
                if self._idle(entry) and now - entry.used >= IDLE_S:
                    self.drain(key)

    def state(self, key: Key) -> Optional[str]:
        """Return the state of an entry, None = there is none."""
        with self._lock:
            entry = self._entries.get(key)
            return entry.state if entry else None

    def fetches(self) -> int:
        """Return the number of fetches that are under way."""
        with self._lock:
            return len(self._fetches)

    def _idle(self, entry: Held) -> bool:
        return entry.state == READY and not entry.own and not entry.leases

    def _make_room(self, key: Key, size: int) -> None:
        """Remove idle views until `size` bytes more fit: other artifacts first, then the longest unused."""
        over = size + sum(entry.size for entry in self._entries.values() if not entry.own) - self._budget
        idle: List[Tuple[bool, float, Key]] = sorted(
            (other.artifact == key.artifact, entry.used, other)
            for other, entry in self._entries.items() if self._idle(entry))
        if over > sum(self._entries[other].size for _, _, other in idle):
            raise Refused("noRoom")
        for _, _, other in idle:
            if over <= 0:
                return
            size_there = self._entries[other].size
            self.drain(other)
            over -= size_there if other not in self._entries else 0
        if over > 0:
            raise Refused("noRoom")

    def _retire(self, key: Key) -> None:
        """Remove what drains and has no fetch; where another process of the node uses it, it stays ready."""
        entry = self._entries[key]
        if entry.state == DRAINING and not entry.leases:
            if self._drop(key):
                del self._entries[key]
            else:
                entry.state, entry.used = READY, self._clock()
