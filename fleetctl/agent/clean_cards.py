"""Find clean cards on the nodes of a replica that refused dirty ones, and hold the dirty ones until it has its own.

Ray grants cards without checking their memory, so the replica would get the same dirty card again. Holders are unnamed
actors of the run that creates the replica. They run nothing, and end with the run at the latest.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import cards, cluster, node
from .cluster import SHARE
from .driver import query_driver
from .messages import Member, Resident
from .node import node_environment

MAX_TRIES = 3
"""How many times a replica asks for cards when Ray grants dirty ones although clean ones are free on the node."""
SEARCHING, NONE_CLEAN = "looking for clean cards there", "no other card of the node is free and clean"
MAX_HOLDERS = 11
"""On one node: eight cards, and some more because several holders may get shares of one card."""
UNPLACED_S = 15.0
"""A holder without a worker for this long has found no free card."""
ANSWER_S = 60.0


class CardHolder:
    """Holds a card, or a share of one, that Ray has granted."""

    def objection(
        self, gpu_share: int, vram_bytes: int, cooling: Sequence[str], residents: Sequence[Resident]
    ) -> Optional[str]:
        """Return why a replica could not use the card, in the replica's own words."""
        answer = query_driver(node_environment())
        return cards.check_granted(answer, node.granted_cards(), gpu_share, vram_bytes, cooling, residents).objection


class CleanCards:
    """The search for clean cards for members of one replica, on each of their nodes. `clock` in seconds."""

    def __init__(self, members: Sequence[Member], clock: Callable[[], float] = time.monotonic) -> None:
        on_nodes: Dict[str, List[Member]] = {}
        for member in members:
            on_nodes.setdefault(member.node_id, []).append(member)
        self._searches = [_NodeSearch(there, clock) for there in on_nodes.values()]

    def step(self) -> Optional[bool]:
        """Continue without waiting. True = enough clean cards, held like the dirty ones; False = a node has too few."""
        for search in self._searches:
            if search.found is None:
                search.found = search.step()
        found = [search.found for search in self._searches]
        return False if False in found else None if None in found else True

    def free_the_clean(self) -> None:
        """End all holders except those of dirty cards, so the next request gets clean cards."""
        for search in self._searches:
            search.free_the_clean()

    def release(self) -> None:
        """End all remaining holders, which gives their cards back to Ray."""
        for search in self._searches:
            search.release()


class _NodeSearch:
    """The search on one node. If members claim different shares of a card, or different memory, the largest counts."""

    def __init__(self, members: Sequence[Member], clock: Callable[[], float]) -> None:
        self.found: Optional[bool] = None
        self._node_id, self._cooling = members[0].node_id, list(members[0].cooling_cards)
        self._residents = list(members[0].residents)
        self._vram = max(member.vram for member in members)
        self._share = min(max(member.gpus for member in members), SHARE)
        self._wanted = sum(-(-member.gpus // SHARE) for member in members)
        self._clock = clock
        self._holders: List[Any] = []
        self._clean: List[Any] = []
        self._dirty: List[Any] = []
        self._answer: Any = None
        self._since = 0.0

    def step(self) -> Optional[bool]:
        """Continue without waiting. True = enough clean cards; False = too few.

        The search continues until it holds a dirty card: Ray may still be reclaiming that one, and would grant it next.
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
        ended = (enough and self._dirty) or len(self._holders) == MAX_HOLDERS if done else self._is_late()
        return enough if ended else None

    def _take_one(self) -> None:
        holder = ray.remote(CardHolder).options(
            num_cpus=0, num_gpus=self._share / SHARE, max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(self._node_id, soft=False)).remote()
        self._holders.append(holder)
        self._since = self._clock()
        self._answer = holder.objection.remote(self._share, self._vram, self._cooling, self._residents)

    def _is_late(self) -> bool:
        waited_s = self._clock() - self._since
        placed = cluster.actor_record(self._holders[-1]._actor_id.hex()).placed
        return waited_s >= (ANSWER_S if placed else UNPLACED_S)

    def free_the_clean(self) -> None:
        """End all holders except those of dirty cards."""
        self._end([holder for holder in self._holders if holder not in self._dirty])

    def release(self) -> None:
        """End all remaining holders."""
        self._end(self._holders)

    def _end(self, holders: List[Any]) -> None:
        """End the given holders; this search has created them all."""
        for holder in holders:
            ray.kill(holder, no_restart=True)
        self._holders = [holder for holder in self._holders if holder not in holders]
