"""Turns on a node's shared cards: Ray must see fractional claims in the order the plan counted on.

Ray picks the card by best fit when a worker is granted. Two fractional replicas that arrive in another order can end on
cards that leave a third without room; so on one node a claim waits until the one before it has its card.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Sequence, Set

SHARE = 10_000


class CardTurns:
    """For each replica, which earlier ones must have their cards first. Whole cards alone need no turns."""

    def __init__(self, replicas: Sequence[Mapping[str, Any]]) -> None:
        self._before: Dict[str, Set[str]] = {}
        self._done: Set[str] = set()
        fractional = {
            member["nodeId"] for replica in replicas for member in replica["members"] if 0 < int(member["gpus"]) < SHARE
        }
        last_on: Dict[str, str] = {}
        for replica in replicas:
            nodes = {member["nodeId"] for member in replica["members"] if int(member["gpus"]) > 0} & fractional
            self._before[str(replica["id"])] = {last_on[node] for node in nodes if node in last_on}
            last_on.update({node: str(replica["id"]) for node in nodes})

    def may_begin(self, replica_id: str) -> bool:
        """Return whether every earlier replica on the same shared nodes has its cards, or never will."""
        return self._before[replica_id] <= self._done

    def done(self, replica_id: str) -> None:
        """Note that Ray has chosen this replica's cards, or never will."""
        self._done.add(replica_id)
