"""What the checks before creates know of the cluster: one read of Ray serves many creates.

Reading a large cluster takes longer than creating a replica, so all creates within VIEW_S are checked against one read,
with what this run has created since: names and claims. Ray shows a grant in its free resources only after a while, so a
claim counts from its create on, whether Ray shows it yet or not.
"""

from __future__ import annotations

from typing import Callable, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from . import cluster
from .cluster import Amounts
from .messages import Member

VIEW_S = 0.25
"""How long one read serves. The lock, and the name of an actor, which Ray lets exist once, need no view."""
SEEN_S = 2.0
"""Ray shows a grant in its free resources within this time; less than what a shortfall must last to count."""


class _Read(NamedTuple):
    """One read of Ray: the names of all actors, and the nodes. `at` = when, by the clock of the run."""

    at: float
    names: Set[str]
    alive: Collection[str]
    draining: Set[str]
    free: Mapping[str, Amounts]


class _Claimed:
    """What this run has created on one node, and Ray may not show yet.

    `left` = what was left after all of it, of each resource that it claims; `claims` = by actor id the claim, and from
    when Ray shows it, None = it may not be granted yet.
    """

    def __init__(self) -> None:
        self.left: Dict[str, float] = {}
        self.claims: Dict[str, Tuple[Amounts, Optional[float]]] = {}


class View:
    """The view that the attempts of one run share; `clock` in seconds. What it reads may raise, what it is told not."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = _Read(float("-inf"), set(), (), set(), {})
        self._nodes: Dict[str, _Claimed] = {}

    def names(self) -> Set[str]:
        """Return the names of all actors of this namespace that are not dead."""
        return self._read().names

    def trouble(self, node_id: str) -> Optional[Tuple[str, str]]:
        """Return why a node takes no new actor, as code and text, or None if it does."""
        read = self._read()
        return cluster.trouble_of(node_id, read.alive, read.draining)

    def free(self, node_id: str) -> Amounts:
        """Return what Ray shows as free on a node: claims of this run may still be part of it."""
        return self._read().free.get(node_id, {})

    def left(self, node_id: str) -> Amounts:
        """Return what is free on a node after all claims of this run there."""
        self._read()
        return self._left(node_id)

    def shortfalls(self, members: Sequence[Member]) -> List[str]:
        """Compare what is left on each node with the claims of `members`; return a text for each shortfall."""
        return cluster.shortfalls(members, {member.node_id: self.left(member.node_id) for member in members})

    def created(self, name: str, actor_id: str, members: Sequence[Member]) -> None:
        """Count a new replica of this run: its name and its claims are taken from now on."""
        self._last.names.add(name)
        for node_id, claim in cluster.claims_by_node(members).items():
            left = self._left(node_id)
            node = self._nodes.setdefault(node_id, _Claimed())
            node.left.update({resource: left[resource] - claim[resource] for resource in claim.keys() & left.keys()})
            node.claims[actor_id] = claim, None

    def granted(self, actor_id: str) -> None:
        """Note that Ray has granted the claims of a replica: it soon shows them."""
        for node in self._nodes.values():
            if actor_id in node.claims:
                node.claims[actor_id] = node.claims[actor_id][0], self._clock() + SEEN_S

    def ended(self, name: str, actor_id: str) -> None:
        """Note that a replica is dead: it holds nothing, and its name is free again."""
        self._last.names.discard(name)
        for node in self._nodes.values():
            claim, _ = node.claims.pop(actor_id, ({}, None))
            for resource in claim.keys() & node.left.keys():
                node.left[resource] += claim[resource]

    def _read(self) -> _Read:
        now = self._clock()
        if now - self._last.at >= VIEW_S:
            self._last = _Read(now, cluster.taken_names(), cluster.alive_nodes(), cluster.draining_nodes(),
                               cluster.free_by_node())
        return self._last

    def _left(self, node_id: str) -> Amounts:
        """Return what is left on a node by the last read.

        What Ray shows, less all claims that it may not show yet, is never too much, but too little once it shows some.
        What was free before these claims, less the claims, is right unless others have taken or given back since. So
        the larger of the two counts, and never more than Ray shows.
        """
        free, node = self._last.free.get(node_id, {}), self._nodes.get(node_id)
        if node is None:
            return free
        now = self._clock()
        node.claims = {actor_id: (claim, seen) for actor_id, (claim, seen) in node.claims.items()
                       if seen is None or now < seen}
        if not node.claims:
            del self._nodes[node_id]
            return free
        unseen: Dict[str, float] = {}
        for claim, _ in node.claims.values():
            for resource, amount in claim.items():
                unseen[resource] = unseen.get(resource, 0.0) + amount
        return {**free, **{resource: max(min(free[resource], node.left.get(resource, 0.0)), free[resource] - amount)
                           for resource, amount in unseen.items() if resource in free}}
