"""What only a running cluster adds to a plan: newer sums, what outdated replicas run, what the autoscaler says.

The cluster does not keep what a replica was started with; the apply that created it recorded it. The answer is shown
and never saved: the bytes of a plan do not depend on which logs are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from fleetctl.apply.history import Recorded, find_recorded
from fleetctl.documents.inventory import UNKNOWN_SPEC
from fleetctl.documents.plan import Drift
from fleetctl.errors import ApplyError, InventoryError
from fleetctl.fleetfile.resolved import ResolvedFleet, ResolvedModel
from fleetctl.inventory.autoscaler import autoscaler_news, sums_caught_up
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.dashboard import Live
from fleetctl.render.difference_text import change_text
from fleetctl.review.running import changed_since
from fleetctl.workflow.invocation import Invocation
from fleetctl.workflow.planned import Changes, Planned

NOT_KNOWN = "it reloads, or a reload has failed: which weights it has is not known"
NOT_RECORDED = "what it was started with is no longer recorded"
SAME = "written in another way, which means the same"
HIDDEN_ALONE = "engine.env: a value is different (values are not recorded)"
HIDDEN_BESIDE = "engine.env: values may be different, too (they are not recorded)"


def with_answers(invocation: Invocation, source: Live, planned: Planned, plan_again: Callable[[], Planned]) -> Planned:
    """Return the plan with the cluster's answers; it is made again where what blocked something was a sum too old."""
    if planned.plan.blocked and sums_caught_up(source.client, planned.inventory, lambda: invocation.say(
            "note", "reading the cluster again: Ray's sums of what is in use are some seconds old")):
        planned = plan_again()
    return replace(planned, changes=look_up_changes(source.client, planned.fleet, planned.plan.drift),
                   autoscaler=autoscaler_news(source.client) if planned.plan.waits_for_nodes else ())


def look_up_changes(client: DashboardClient, fleet: ResolvedFleet, drift: Iterable[Drift]) -> Changes:
    """Return what differs for each spec that runs and is not the file's; asks the cluster only if there is one."""
    models = {model.key: model for model in fleet.models}
    wanted = {(one.model, one.runs): None for one in drift if one.runs is not None and one.model in models}
    known = [spec for spec in wanted if spec[1] != UNKNOWN_SPEC]
    try:
        recorded = find_recorded(client, fleet.name, known) if known else {}
    except (ApplyError, InventoryError) as error:
        return dict.fromkeys(wanted, (f"what it was started with could not be looked up: {error.message}",))
    return {spec: _words(recorded.get(spec), models[spec[0]]) if spec in known else [NOT_KNOWN] for spec in wanted}


def _words(recorded: Recorded | None, model: ResolvedModel) -> list[str]:
    since = changed_since(recorded.shape, recorded.model.spec_hash, model) if recorded else None
    if since is None:
        return [NOT_RECORDED]
    words = [change_text(difference) for difference in since.differences]
    hidden = [HIDDEN_BESIDE if words else HIDDEN_ALONE] if since.hidden else []
    return [*words, *hidden] or [SAME]
