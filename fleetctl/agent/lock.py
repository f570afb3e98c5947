"""The lock of a fleet: one apply creates at a time. It is the highest of numbered entries in Ray's key-value table.

The job that writes the next number holds the lock; of two writers of a key, Ray lets one succeed. An entry counts until
its job ends or releases it. The highest entry is never deleted, so no number is used twice: a holder that was suspended
and resumes sees that its number is no longer the highest (a fencing token, Kleppmann 2016).

An actor would work too, but its worker process takes a second to start.
"""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_list, _internal_kv_put

from .cluster import job_is_alive
from .failure import KV_NAMESPACE

POLL_S = 0.5
RELEASED = "released"


class LockBusy(Exception):
    """Another job holds the lock: the `holder`."""

    def __init__(self, fleet: str, holder: Mapping[str, Any]) -> None:
        super().__init__(f"the lock of fleet {fleet} is held by job {holder.get('job', 'unknown')}")
        self.holder = dict(holder)


class Interrupted(Exception):
    """SIGTERM came while we waited for the lock."""


class HeldLock:
    """The lock of a fleet, held by this job with a number."""

    def __init__(self, fleet: str, number: int, holder: Mapping[str, Any]) -> None:
        self._fleet, self._number, self._holder = fleet, number, holder
        self.released = False

    def hold(self) -> bool:
        """Return whether this job holds the lock; takes it again if it was released and no other job has it since."""
        held = max(_numbers(self._fleet), default=None) == self._number
        if held and self.released:
            held = _write(self._fleet, self._number + 1, self._holder)
            if held:
                self._number, self.released = self._number + 1, False
        return held

    def release(self) -> None:
        """Release the lock; the next job may take it immediately."""
        self.released = True
        released = json.dumps({**self._holder, RELEASED: True}).encode()
        _internal_kv_put(_key(self._fleet, self._number), released, overwrite=True, namespace=KV_NAMESPACE)


def take_lock(
    fleet: str, holder: Mapping[str, Any], timeout_s: float, waiting: Callable[[Mapping[str, Any]], None],
    stopped: Callable[[], bool],
) -> HeldLock:
    """Take the fleet's lock, waiting up to `timeout_s`; raises LockBusy, or Interrupted if `stopped`.

    `holder["driver"]` is the id of our Ray job. `waiting` is called once for each other holder.
    """
    deadline, reported = time.monotonic() + timeout_s, None
    while True:
        number = max(_numbers(fleet), default=-1)
        other = _active_holder(fleet, number)
        if other is None:
            if _write(fleet, number + 1, holder):
                return HeldLock(fleet, number + 1, holder)
            continue  # another job was faster: read the lock again
        if stopped():
            raise Interrupted
        if time.monotonic() >= deadline:
            raise LockBusy(fleet, other)
        if other != reported:
            waiting(other)
            reported = other
        time.sleep(min(POLL_S, max(0.05, deadline - time.monotonic())))


def _active_holder(fleet: str, number: int) -> Optional[Dict[str, Any]]:
    """Return the holder of entry `number`; None if there is none, it was released, or its job has ended."""
    packed = _internal_kv_get(_key(fleet, number), namespace=KV_NAMESPACE)
    if packed is None:
        return None
    holder: Dict[str, Any] = json.loads(packed)
    return None if holder.get(RELEASED) or not job_is_alive(str(holder.get("driver"))) else holder


def _write(fleet: str, number: int, holder: Mapping[str, Any]) -> bool:
    """Write an entry; returns whether it is the highest, as a newer one may have deleted the key of this number."""
    entry = json.dumps(holder).encode()
    if _internal_kv_put(_key(fleet, number), entry, overwrite=False, namespace=KV_NAMESPACE):  # it exists
        return False
    known = _numbers(fleet)
    for stale in known:
        if stale < number:
            _internal_kv_del(_key(fleet, stale), namespace=KV_NAMESPACE)
    if max(known) > number:
        _internal_kv_del(_key(fleet, number), namespace=KV_NAMESPACE)
        return False
    return True


def _numbers(fleet: str) -> List[int]:
    prefix = _prefix(fleet)
    return [int(key[len(prefix):]) for key in _internal_kv_list(prefix, namespace=KV_NAMESPACE)]


def _prefix(fleet: str) -> bytes:
    return f"lock:{fleet}:".encode()


def _key(fleet: str, number: int) -> bytes:
    return _prefix(fleet) + str(number).encode()


def left_locks() -> List[Dict[str, Any]]:
    """Return the newest lock of each fleet whose job ended without releasing it. Such a lock no longer counts."""
    newest: Dict[str, int] = {}
    for key in _internal_kv_list(b"lock:", namespace=KV_NAMESPACE):
        fleet, _, number = key.decode()[len("lock:"):].rpartition(":")
        newest[fleet] = max(int(number), newest.get(fleet, 0))
    found: List[Dict[str, Any]] = []
    for fleet, number in sorted(newest.items()):
        packed = _internal_kv_get(_key(fleet, number), namespace=KV_NAMESPACE)
        holder = json.loads(packed) if packed else {RELEASED: True}
        if not holder.get(RELEASED) and not job_is_alive(str(holder.get("driver"))):
            found.append({"fleet": fleet, "number": number, "job": str(holder.get("job", ""))})
    return found


def release_left(fleet: str, number: int) -> bool:
    """Release an abandoned lock; returns False if it is held, released, or has a newer number by now."""
    left = [lock for lock in left_locks() if (lock["fleet"], lock["number"]) == (fleet, number)]
    for lock in left:
        HeldLock(fleet, number, {"job": lock["job"]}).release()
    return bool(left)
