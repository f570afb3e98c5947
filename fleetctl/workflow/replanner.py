"""The plan of one apply, made again while it runs: for the replicas that nodes have refused, and no more than those."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from fleetctl.apply.replan import ReplanWanted, limited_to_refused
from fleetctl.apply.replan_command import USUAL_EXPIRY_S
from fleetctl.documents.plan import Plan
from fleetctl.workflow.dashboard import live_source
from fleetctl.workflow.invocation import Invocation, Where
from fleetctl.workflow.planned import Planned
from fleetctl.workflow.planning import plan_on


class FleetReplanner:
    """Makes the plan of one apply again, each time for the replicas that nodes have refused."""

    def __init__(self, invocation: Invocation, planned: Planned, where: Where) -> None:
        self._invocation = replace(invocation, working=nullcontext)  # the apply has a display of its own
        self._planned = planned
        self._where = where
        self._blocked = {row.model: row for row in planned.plan.blocked}

    def __call__(self, wanted: ReplanWanted) -> Plan:
        """Return the plan for the refused replicas, on the cluster as its agent sees it; raises FleetctlError."""
        refused, planned = wanted.refused_by_model(), self._planned
        options = replace(planned.options, targets=tuple(sorted(refused)))
        with live_source(self._invocation, self._where, planned.fleet.cluster) as source:
            seen_by_agent = replace(source, agent=wanted.view())
            made = plan_on(self._invocation, seen_by_agent, planned.fleet, options, self._where, USUAL_EXPIRY_S,
                           git=planned.facts.git)
        former = planned.plan.model_copy(update={"blocked": list(self._blocked.values())})
        found = limited_to_refused(made.plan, former, refused)
        self._blocked = {key: row for key, row in self._blocked.items() if key not in refused}
        self._blocked |= {row.model: row for row in found.blocked}
        return found
