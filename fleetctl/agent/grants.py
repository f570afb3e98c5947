"""Whether Ray may have granted a replica that has no worker yet: its own grant must not be taken for somebody's.

Ray does not say which of the actors that wait for a worker hold their resources already. But a grant is seen on the
node: what is free there has gone down by the claim since the replica was created, and neither a later replica of this
run nor an actor of somebody else explains it. In doubt it is granted, as only what holds nothing may be taken back.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from . import cluster
from .create import CreatedHere


class _Entry:
    """One replica that this run created. `placed` = it has its worker."""

    def __init__(self, created: CreatedHere, claim: Mapping[str, float]) -> None:
        self.created = created
        self.claim = claim
        self.placed = False


class Grants:
    """What this run has created on each node, in order. For replicas of one member: a gang's group tells by itself."""

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
