"""Find clean cards on a node for a replica that asks Ray again, and hold the dirty ones until it has its own.

Ray hands out cards without a look at their memory: what found a dirty card would get the same one again. Holders are
actors of the run that creates the replica, or of a gang's coordinator, without a name; they run nothing, and end with
their owner at the latest.
"""

from __future__ import annotations

import time
from typing import Any, Callable, List, Mapping, Optional, Sequence

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import cards, cluster, node
from .claims import SHARE
from .driver import ask
from .environment import node_environment

MOST_TRIES = 3
"""How often a replica asks for cards, where Ray hands out some that others use although clean ones are free there."""
SEARCHING, NONE_CLEAN = "looking for clean cards there", "no other card of the node is free and clean"
MOST_HOLDERS = 11
"""Eight cards, and what holds several shares of one."""
UNPLACED_S = 15.0
"""Without a worker for so long, a holder found no card that is free."""
ANSWER_S = 60.0
STEP_S = 0.1


class CardHolder:
    """Holds a card that Ray has granted, or a share of it."""

    def objection(self, gpu_share: int, vram_bytes: int, cooling: Sequence[str]) -> Optional[str]:
        """Return why a replica could not use it, as the replica itself would say it."""
        return cards.look(ask(node_environment()), node.granted_cards(), gpu_share, vram_bytes, cooling).objection


class CleanCards:
    """The search for the cards that the members of one replica on one node claim. `clock` in seconds.

    Where they claim different shares of a card, or different memory, each is looked for as the largest.
    """

    def __init__(self, members: Sequence[Mapping[str, Any]], clock: Callable[[], float] = time.monotonic) -> None:
        self._node_id = members[0]["nodeId"]
        self._vram = max(int(member["vram"]) for member in members)
        self._cooling = members[0].get("coolingCards", ())
        self._share = min(max(int(member["gpus"]) for member in members), SHARE)
        self._wanted = sum(-(-int(member["gpus"]) // SHARE) for member in members)
        self._clock = clock
        self._holders: List[Any] = []
        self._clean: List[Any] = []
        self._dirty: List[Any] = []
        self._answer: Any = None
        self._since = 0.0

    def step(self) -> Optional[bool]:
        """Go on without waiting. True = there are clean cards, all held as the dirty ones are; False = too few.

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
            return enough
        return None

    def _take_one(self) -> None:
        holder = ray.remote(CardHolder).options(
            num_cpus=0, num_gpus=self._share / SHARE, max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(self._node_id, soft=False)).remote()
        self._holders.append(holder)
        self._answer, self._since = holder.objection.remote(self._share, self._vram, self._cooling), self._clock()

    def _is_late(self) -> bool:
        waited_s = self._clock() - self._since
        placed = cluster.actor_record(self._holders[-1]._actor_id.hex()).placed
        return waited_s >= (ANSWER_S if placed else UNPLACED_S)

    def free_the_clean(self) -> None:
        """End all holders but those of dirty cards: the next that asks gets clean ones."""
        self._end([one for one in self._holders if one not in self._dirty])

    def release(self) -> None:
        """End all holders that are left; Ray has their cards back."""
        self._end(self._holders)

    def _end(self, holders: List[Any]) -> None:
        """End some of the holders that this search has created."""
        for holder in holders:
            ray.kill(holder, no_restart=True)
        self._holders = [one for one in self._holders if one not in holders]


def find_all(searches: Sequence[CleanCards]) -> bool:
    """Return whether there are clean cards on every node; then they are free, and the dirty ones held."""
    todo = list(searches)
    while todo:
        for search in list(todo):
            found = search.step()
            if found is False:
                return False
            if found:
                todo.remove(search)
        time.sleep(STEP_S)
    for search in searches:
        search.free_the_clean()
    return True
