"""Find clean cards on a node for one replica that is created again, and hold the dirty ones until it has its own.

Ray hands out cards without a look at their memory: what found a dirty card would get the same one again. Holders are
actors of this very job, without a name; they run nothing, and end with it at the latest.
"""

from __future__ import annotations

import time
from typing import Any, Callable, List, Mapping, Optional

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import cards, cluster, node
from .claims import SHARE
from .driver import ask
from .environment import node_environment

MOST_HOLDERS = 11
"""Eight cards, and what holds several shares of one."""
UNPLACED_S = 15.0
"""Without a worker for so long, a holder found no card that is free."""
ANSWER_S = 60.0


class CardHolder:
    """Holds a card that Ray has granted, or a share of it."""

    def objection(self, gpu_share: int, vram_bytes: int) -> Optional[str]:
        """Return why a replica could not use it, as the replica itself would say it."""
        return cards.look(ask(node_environment()), node.granted_cards(), gpu_share, vram_bytes).objection


class CleanCards:
    """The search for the cards that one member claims. `clock` in seconds."""

    def __init__(self, member: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._node_id, self._vram = member["nodeId"], int(member["vram"])
        self._share = min(int(member["gpus"]), SHARE)
        self._wanted = max(1, int(member["gpus"]) // SHARE)
        self._clock = clock
        self._holders: List[Any] = []
        self._clean: List[Any] = []
        self._dirty: List[Any] = []
        self._answer: Any = None
        self._since = 0.0

    def step(self) -> Optional[bool]:
        """Go on without waiting. True = clean cards are free, and the dirty ones held; False = there are too few.

        It goes on until it has met a dirty card: Ray may not have taken that one back yet, and would hand it out next.
        """
        if self._answer is None:
            self._take_one()
            return None
        done, _ = ray.wait([self._answer], timeout=0)
        if done:
            try:
                (self._dirty if ray.get(self._answer) else self._clean).append(self._holders[-1])
            except ray.exceptions.RayError:
                return False
            self._answer = None
        enough = len(self._clean) >= self._wanted
        if (enough and self._dirty) or len(self._holders) == MOST_HOLDERS or (not done and self._is_late()):
            self._end([one for one in self._holders if one not in self._dirty])
            return enough
        return None

    def _take_one(self) -> None:
        holder = ray.remote(CardHolder).options(
            num_cpus=0, num_gpus=self._share / SHARE, max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(self._node_id, soft=False)).remote()
        self._holders.append(holder)
        self._answer, self._since = holder.objection.remote(self._share, self._vram), self._clock()

    def _is_late(self) -> bool:
        waited_s = self._clock() - self._since
        placed = cluster.actor_record(self._holders[-1]._actor_id.hex()).placed
        return waited_s >= (ANSWER_S if placed else UNPLACED_S)

    def release(self) -> None:
        """End all holders that are left; Ray has their cards back."""
        self._end(self._holders)

    def _end(self, holders: List[Any]) -> None:
        """End some of the holders that this search has created."""
        for holder in holders:
            ray.kill(holder, no_restart=True)
        self._holders = [one for one in self._holders if one not in holders]
