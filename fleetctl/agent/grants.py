"""When replicas get their cards from Ray: in which order, and whether Ray may have granted one that has no worker yet.

Ray picks the card by best fit when a worker is granted. Two fractional replicas that arrive in another order than in
the plan can end on cards that leave a third without room; so on one node a claim waits until the one before it has its
card.

Ray does not say which of the actors that wait for a worker hold their resources already. But a grant shows on the node:
since the replica was created, the free amount there went down by its claim, and neither a later replica of this run nor
a foreign actor explains it. In doubt it is granted, as only a replica that holds nothing may be taken back.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

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


class Grants:
    """The replicas of one member that this run has created on each node, in order. Ray itself shows a gang's grant."""

    def __init__(self) -> None:
        self._claims: Dict[str, List[Tuple[str, Mapping[str, float]]]] = {}
        """By node, the actor id and the claim of each."""
        self._placed: Set[str] = set()
        """The actors that have their worker."""

    def created(self, created: CreatedHere, member: Mapping[str, Any]) -> None:
        """Note a replica of one member that was just created."""
        claim = cluster.claims_by_node([member])[member["nodeId"]]
        self._claims.setdefault(member["nodeId"], []).append((created.actor_id, claim))

    def placed(self, created: CreatedHere) -> None:
        """Note that it has its worker."""
        self._placed.add(created.actor_id)

    def ended(self, created: CreatedHere) -> None:
        """Note that it is dead, and holds nothing any more."""
        for node_id, claims in self._claims.items():
            self._claims[node_id] = [one for one in claims if one[0] != created.actor_id]

    def may_be_granted(self, created: CreatedHere, node_id: str) -> bool:
        """Return whether what is free on the node has changed as if Ray had granted the replica what it claims."""
        ids, claims = zip(*self._claims[node_id])
        place = ids.index(created.actor_id)
        now = cluster.free_by_node().get(node_id, {})
        theirs = cluster.started_since(node_id, created.at_ms, but=ids)
        granted_since = [claims[later] for later in range(place + 1, len(ids)) if ids[later] in self._placed]
        for resource, amount in claims[place].items():
            gone = created.free_before[node_id].get(resource, 0.0) - now.get(resource, 0.0)
            explained = theirs.get(resource, 0.0) + sum(claim.get(resource, 0.0) for claim in granted_since)
            if gone - explained + cluster.SLACK < amount:
                return False
        return True
