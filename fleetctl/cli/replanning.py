"""Plan again while an apply runs, where its agent found nodes other than the plan took them for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.apply.replan import ReplanWanted
    from fleetctl.cli.planning import Where
    from fleetctl.documents.plan import Plan
    from fleetctl.fleetfile.resolved import ResolvedFleet
    from fleetctl.planner.options import PlanOptions


class FleetReplanner:
    """Makes the plan of one apply again, each time for the replicas that nodes have refused."""

    def __init__(self, fleet: ResolvedFleet, options: PlanOptions, where: Where, plan: Plan) -> None:
        self._fleet = fleet
        self._options = options
        self._where = where
        self._blocked = {row.model: row for row in plan.blocked}
        self._plan = plan

    def __call__(self, wanted: ReplanWanted) -> Plan:
        """Return the plan for what was refused, on what the agent has seen; raises FleetctlError if there is none."""
        from fleetctl.apply.replan import limited_to_refused
        from fleetctl.cli.planning import plan_around

        refused = wanted.refused_by_model()
        options = replace(self._options, targets=tuple(sorted(refused)))
        fresh = plan_around(self._fleet, options, self._where, wanted.view())
        former = self._plan.model_copy(update={"blocked": list(self._blocked.values())})
        found = limited_to_refused(fresh, former, refused)
        self._blocked = {key: row for key, row in self._blocked.items() if key not in refused}
        self._blocked |= {row.model: row for row in found.blocked}
        return found
