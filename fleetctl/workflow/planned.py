"""A plan with all its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.documents.inventory import Inventory
from fleetctl.documents.plan import Drift, Plan
from fleetctl.fleetfile.resolved import ResolvedFleet
from fleetctl.planner.options import PlanFacts, PlanOptions

if TYPE_CHECKING:
    from fleetctl.documents.answers import PlacementMap

Changes = Mapping[tuple[str, str], Sequence[str]]
"""Differences in words, by model key and the spec hash of running replicas."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and its inputs. Only for display: `changes` = how outdated replicas differ from the file, and the
    `autoscaler`'s reports about requested nodes.
    """

    fleet: ResolvedFleet
    inventory: Inventory
    options: PlanOptions
    facts: PlanFacts
    plan: Plan
    changes: Changes = field(default_factory=dict)
    autoscaler: Sequence[str] = ()

    def shown(self) -> Plan:
        """Return the plan with the additions for display. Its id stays that of the plan itself."""
        if not self.changes and not self.autoscaler:
            return self.plan
        return self.plan.model_copy(update={"drift": add_changes(self.plan.drift, self.changes),
                                            "autoscaler": list(self.autoscaler)})

    def map(self) -> PlacementMap:
        """Return the map with the plan's new replicas."""
        from fleetctl.planner.questions.occupancy import placement_map  # NumPy
        from fleetctl.planner.questions.scenario import Scenario

        return placement_map(Scenario(self.fleet, self.inventory, self.options.adopt_from), self.plan)


def add_changes(drift: Iterable[Drift], changes: Changes) -> list[Drift]:
    """Return the drift with the differences filled in."""
    return [item.model_copy(update={"changes": list(changes[item.model, item.runs])})
            if item.runs is not None and (item.model, item.runs) in changes else item for item in drift]
