"""When replicas get their cards from Ray: in which order, and whether Ray may have granted one that has no worker yet.

Ray picks the card by best fit when a worker is granted. Two fractional replicas that arrive in another order than in
the plan can end on cards that leave a third without room; so on one node a claim waits until the one before it has its
card.

Ray does not say which of the actors that wait for a worker hold their resources already. But a grant shows on the node:
since the replica was created, the free amount there went down by its claim, and neither a later replica of this run nor
a foreign actor explains it. In doubt it is granted, as only a replica that holds nothing may be taken back.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Set

from . import cluster
from .claims import SHARE
from .create import CreatedHere


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


class _Entry:
    """One replica that this run created. `placed` = it has its worker."""

    def __init__(self, created: CreatedHere, claim: Mapping[str, float]) -> None:
        self.created = created
        self.claim = claim
        self.placed = False


class Grants:
    """The replicas of one member that this run has created on each node, in order. Ray itself shows a gang's grant."""

    def __init__(self) -> None:
        self._entries: Dict[str, List[_Entry]] = {}

    def created(self, created: CreatedHere, member: Mapping[str, Any]) -> None:
        """Note a replica of one member that was just created."""
        claim = cluster.claims_by_node([member])[member["nodeId"]]
        self._entries.setdefault(member["nodeId"], []).append(_Entry(created, claim))

    def placed(self, created: CreatedHere, node_id: str) -> None:
        """Note that it has its worker."""
        for entry in self._entries.get(node_id, []):
            entry.placed = entry.placed or entry.created is created

    def ended(self, created: CreatedHere) -> None:
        """Note that it is dead, and holds nothing any more."""
        for node_id, entries in self._entries.items():
            self._entries[node_id] = [entry for entry in entries if entry.created is not created]

    def may_be_granted(self, created: CreatedHere, node_id: str) -> bool:
        """Return whether what is free on the node has changed as if Ray had granted the replica what it claims."""
        entries = self._entries[node_id]
        place = next(place for place, entry in enumerate(entries) if entry.created is created)
        own = entries[place]
        ids = {entry.created.actor_id for entry in entries}
        now = cluster.free_by_node().get(node_id, {})
        theirs = cluster.started_since(node_id, created.at_ms, but=ids)
        granted_since = [entry.claim for entry in entries[place + 1:] if entry.placed]
        for resource, amount in own.claim.items():
            gone = created.free_before[node_id].get(resource, 0.0) - now.get(resource, 0.0)
            explained = theirs.get(resource, 0.0) + sum(claim.get(resource, 0.0) for claim in granted_since)
            if gone - explained + cluster.SLACK < amount:
                return False
        return True
