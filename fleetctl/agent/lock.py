"""The lock of a fleet: one apply creates at a time. It is the highest of numbered entries in Ray's key-value table.

The job that writes the next number holds the lock; of two writers of a key, Ray lets one succeed. An entry counts until
its job ends or releases it. The highest entry is never deleted, so no number is used twice: a holder that was suspended
and resumes sees that its number is no longer the highest (a fencing token, Kleppmann 2016).

An actor would work too, but its worker process takes a second to start.
"""

from __future__ import annotations

import json
import time
from typing import Callable, Dict, List, Optional

from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_list, _internal_kv_put

from .cluster import job_is_alive
from .report import KV_NAMESPACE
from .run_messages import Holder, LeftLock
from .wire import document_of, parse

POLL_S = 0.5


class LockBusy(Exception):
    """Another job holds the lock: the `holder`."""

    def __init__(self, fleet: str, holder: Holder) -> None:
        super().__init__(f"the lock of fleet {fleet} is held by job {holder.job or 'unknown'}")
        self.holder = holder


class Interrupted(Exception):
    """SIGTERM came while we waited for the lock."""


class HeldLock:
    """The lock of a fleet, held by this job with a number."""

    def __init__(self, fleet: str, number: int, holder: Holder) -> None:
        self._fleet, self._number, self._holder = fleet, number, holder
        self.released = False

    def hold(self) -> bool:
        """Return whether this job holds the lock; takes it again if it was released and no other job has it since."""
        entries = _entries(self._fleet)
        held = max(entries.numbers(), default=None) == self._number
        if held and self.released:
            held = entries.write(self._number + 1, _packed(self._holder))
            if held:
                self._number, self.released = self._number + 1, False
        return held

    def take_again(self) -> bool:
        """Take the lock again after its release, as soon as no other job has it; returns whether this job has it.

        Others may have created replicas meanwhile, so this is for a plan that is made afterwards.
        """
        if not self.released:
            return self.hold()
        entries = _entries(self._fleet)
        number = max(entries.numbers(), default=-1)
        other = _holder_at(self._fleet, number)
        if (other and _is_active(other)) or not entries.write(number + 1, _packed(self._holder)):
            return False
        self._number, self.released = number + 1, False
        return True

    def release(self) -> None:
        """Release the lock; the next job may take it immediately."""
        self.released = True
        _entries(self._fleet).replace(self._number, _packed(self._holder._replace(released=True)))


def take_lock(
    fleet: str, holder: Holder, timeout_s: float, waiting: Callable[[Holder], None],
    stopped: Callable[[], bool],
) -> HeldLock:
    """Take the fleet's lock, waiting up to `timeout_s`; raises LockBusy, or Interrupted if `stopped`.

    `holder.driver` is the id of our Ray job. `waiting` is called once for each other holder.
    """
    deadline, reported = time.monotonic() + timeout_s, None
    while True:
        number = max(_entries(fleet).numbers(), default=-1)
        other = _holder_at(fleet, number)
        if other is None or not _is_active(other):
            if _entries(fleet).write(number + 1, _packed(holder)):
                return HeldLock(fleet, number + 1, holder)
            continue  # another job was faster: read the lock again
        if time.monotonic() >= deadline:
            raise LockBusy(fleet, other)
        if stopped():
            raise Interrupted
        if other != reported:
            waiting(other)
            reported = other
        time.sleep(min(POLL_S, max(0.05, deadline - time.monotonic())))


class Numbered:
    """Numbered entries with one prefix in our part of Ray's key-value table; only the highest number counts."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()

    def numbers(self) -> List[int]:
        """Return the numbers of all entries; those below the highest are about to be deleted."""
        return [int(key[len(self._prefix):]) for key in _internal_kv_list(self._prefix, namespace=KV_NAMESPACE)]

    def read(self, number: int) -> Optional[bytes]:
        """Return an entry; None = there is none."""
        found: Optional[bytes] = _internal_kv_get(self._key(number), namespace=KV_NAMESPACE)
        return found

    def write(self, number: int, entry: bytes) -> bool:
        """Write a new entry; returns whether it is the highest, as a newer one may have deleted the key of this number.

        Of two writers of a number, Ray lets one succeed.
        """
        if _internal_kv_put(self._key(number), entry, overwrite=False, namespace=KV_NAMESPACE):  # it exists
            return False
        known = self.numbers()
        newest = max(known, default=number) == number
        for stale in [earlier for earlier in known if earlier < number] if newest else [number]:
            _internal_kv_del(self._key(stale), namespace=KV_NAMESPACE)
        return newest

    def replace(self, number: int, entry: bytes) -> None:
        """Replace an entry of our own."""
        _internal_kv_put(self._key(number), entry, overwrite=True, namespace=KV_NAMESPACE)

    def _key(self, number: int) -> bytes:
        return self._prefix + str(number).encode()


def _entries(fleet: str) -> Numbered:
    return Numbered(f"lock:{fleet}:")


def _holder_at(fleet: str, number: int) -> Optional[Holder]:
    packed = _entries(fleet).read(number)
    return parse(Holder, json.loads(packed)) if packed else None


def _packed(holder: Holder) -> bytes:
    return json.dumps(document_of(holder)).encode()


def _is_active(holder: Holder) -> bool:
    """Return whether the holder of an entry has not released it, and its job has not ended."""
    return not holder.released and job_is_alive(str(holder.driver))


def left_locks() -> List[LeftLock]:
    """Return the newest lock of each fleet whose job ended without releasing it. Such a lock no longer counts."""
    newest: Dict[str, int] = {}
    for key in _internal_kv_list(b"lock:", namespace=KV_NAMESPACE):
        fleet, _, number = key.decode()[len("lock:"):].rpartition(":")
        newest[fleet] = max(int(number), newest.get(fleet, 0))
    found: List[LeftLock] = []
    for fleet, number in sorted(newest.items()):
        holder = _holder_at(fleet, number)
        if holder and not holder.released and not job_is_alive(str(holder.driver)):
            found.append(LeftLock(fleet, number, holder.job))
    return found


def release_left(fleet: str, number: int) -> bool:
    """Release an abandoned lock; returns False if it is held, released, or has a newer number by now."""
    left = [lock for lock in left_locks() if (lock.fleet, lock.number) == (fleet, number)]
    for lock in left:
        HeldLock(fleet, number, Holder(lock.job)).release()
    return bool(left)
