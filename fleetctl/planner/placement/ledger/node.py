"""A node as the planner sees it: everything about it that does not change during planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetctl.documents.inventory import Gpu, NodeState
from fleetctl.planner.placement.policies import EffectivePolicy


@dataclass(frozen=True, slots=True)
class LedgerNode:
    """The facts of a node that do not change while planning."""

    id: str
    name: str
    state: NodeState
    labels: Mapping[str, str]
    policy: EffectivePolicy
    gpus: Sequence[Gpu] = ()
    """Its cards as in the inventory, for messages about the processes on them."""

    @property
    def open(self) -> bool:
        """Whether new members may be placed here at all."""
        return self.state == "ALIVE" and self.policy.cordoned_by is None
