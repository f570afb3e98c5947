"""What only a running cluster adds to a plan: newer sums, what outdated replicas run, what the autoscaler says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fleetctl.inventory.autoscaler import autoscaler_news
from fleetctl.inventory.catch_up import sums_caught_up
from fleetctl.inventory.live import Live
from fleetctl.workflow.invocation import Invocation
from fleetctl.workflow.outdated import look_up_changes
from fleetctl.workflow.planned import Planned


def with_answers(invocation: Invocation, source: Live, planned: Planned, plan_again: Callable[[], Planned]) -> Planned:
    """Return the plan with the cluster's answers; it is made again where what blocked something was a sum too old."""
    if planned.plan.blocked and sums_caught_up(source.client, planned.inventory, lambda: invocation.say(
            "note", "reading the cluster again: Ray's sums of what is in use are some seconds old")):
        planned = plan_again()
    return replace(planned, changes=look_up_changes(source.client, planned.fleet, planned.plan.drift),
                   autoscaler=autoscaler_news(source.client) if planned.plan.waits_for_nodes else ())
