"""How Ray grants cards to replicas: in what order, and whether a replica without a worker may already have its grant.

Ray picks the card by best fit when it grants a worker. If two fractional replicas arrive in a different order than
planned, their cards may leave no room for a third. So on each node a claim waits until the previous one has its card.

Ray does not say which of the actors that wait for a worker already hold their resources. But a grant shows on the node:
since the replica was created, the free amount has fallen by its claim, and neither a later replica of this run nor a
foreign actor explains that. If in doubt, the replica counts as granted: only one that holds nothing may be taken back.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

from . import cluster
from .claims import SHARE
from .create import CreatedHere


class CardTurns:
    """The earlier replicas that must get their cards before each replica, on nodes where cards are shared."""

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
        """Record that Ray has chosen this replica's cards, or never will."""
        self._done.add(replica_id)


class Grants:
    """The single-member replicas that this run has created on each node, in order. Ray itself shows a gang's grant."""

    def __init__(self) -> None:
        self._claims: Dict[str, List[Tuple[str, Mapping[str, float]]]] = {}
        """Actor id and claim of each replica, by node id."""
        self._placed: Set[str] = set()
        """Ids of the actors that have their worker."""

    def created(self, created: CreatedHere, member: Mapping[str, Any]) -> None:
        """Record a new single-member replica."""
        claim = cluster.claims_by_node([member])[member["nodeId"]]
        self._claims.setdefault(member["nodeId"], []).append((created.actor_id, claim))

    def placed(self, created: CreatedHere) -> None:
        """Record that the replica has its worker."""
        self._placed.add(created.actor_id)

    def ended(self, created: CreatedHere) -> None:
        """Record that the replica is dead and holds nothing."""
        for node_id, claims in self._claims.items():
            self._claims[node_id] = [(actor_id, claim) for actor_id, claim in claims if actor_id != created.actor_id]

    def may_be_granted(self, created: CreatedHere, node_id: str) -> bool:
        """Return whether what the node is short of has fallen as if Ray had granted the replica's claim.

        Of anything else, something that has ended may have given back as much.
        """
        ids, claims = zip(*self._claims[node_id])
        position = ids.index(created.actor_id)
        now = cluster.free_by_node().get(node_id, {})
        foreign = cluster.started_since(node_id, created.at_ms, exclude=ids)
        granted_since = [claims[later] for later in range(position + 1, len(ids)) if ids[later] in self._placed]
        for resource, amount in claims[position].items():
            free = now.get(resource, 0.0)
            decrease = created.free_before[node_id].get(resource, 0.0) - free
            explained = foreign.get(resource, 0.0) + sum(claim.get(resource, 0.0) for claim in granted_since)
            if free + cluster.SLACK < amount and decrease - explained + cluster.SLACK < amount:
                return False
        return True
