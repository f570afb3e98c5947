"""One apply per fleet at a time: a named actor that is not detached, so it dies with the job that holds it."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Optional

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

POLL_S = 1.0
ANSWER_S = 10.0
WORKER_S = 60.0
"""How long the lock's own actor may take to get a worker."""


class FleetLock:
    """The lock; it knows who holds it."""

    def __init__(self, holder: Dict[str, str]) -> None:
        self._holder = holder

    def holder(self) -> Dict[str, str]:
        """Return the job that holds the lock, and who started it."""
        return self._holder


class LockBusy(Exception):
    """Another job holds the lock; `holder` says which, as far as it answers."""

    def __init__(self, holder: Dict[str, str]) -> None:
        super().__init__(holder)
        self.holder = holder


class Interrupted(Exception):
    """We were told to stop while we waited for the lock."""


class HeldLock:
    """The lock, held by this job."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def still_held(self) -> bool:
        """Tell whether the lock actor still lives; without it another job may already be at work."""
        try:
            ray.get(self._actor.holder.remote(), timeout=ANSWER_S)
        except Exception:
            return False
        return True


def take_lock(
    fleet: str, holder: Dict[str, str], timeout_s: float, waiting: Callable[[Dict[str, str]], None],
    stopped: Callable[[], bool],
) -> HeldLock:
    """Take the fleet's lock, waiting up to `timeout_s`; raises LockBusy, and Interrupted when told to stop.

    `waiting` is told each holder once.
    """
    name, deadline, told = f"FleetLock:{fleet}", time.monotonic() + timeout_s, None
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    while True:
        try:
            actor = ray.remote(FleetLock).options(name=name, num_cpus=0, scheduling_strategy=here).remote(holder)
            ray.get(actor.holder.remote(), timeout=WORKER_S)
        except (ValueError, ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            other = holder_of(name)
        else:
            return HeldLock(actor)
        if stopped():
            raise Interrupted
        if time.monotonic() >= deadline:
            raise LockBusy(other or {})
        if other and other != told:
            waiting(other)
            told = other
        time.sleep(min(POLL_S, max(0.05, deadline - time.monotonic())))


def holder_of(name: str) -> Optional[Dict[str, str]]:
    """Return what the lock's holder says of itself, or None when it does not answer."""
    try:
        answer: Dict[str, str] = ray.get(ray.get_actor(name).holder.remote(), timeout=ANSWER_S)
    except Exception:
        return None
    return answer
