"""What an agent has seen of the nodes from inside the cluster: the dashboard tells it late, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.inventory.claims import Claim
from fleetctl.inventory.sums import RaySum


@dataclass(frozen=True, slots=True)
class AgentView:
    """What Ray has free by node id, and the nodes that take nothing new because they are draining."""

    free: Mapping[str, Claim] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()

    def sums(self, totals: Mapping[str, Claim]) -> Mapping[str, RaySum]:
        """Return what is in use on each node that the agent has seen, given what the nodes have in all."""
        return {node_id: RaySum(totals[node_id].less(free)) for node_id, free in self.free.items() if node_id in totals}
