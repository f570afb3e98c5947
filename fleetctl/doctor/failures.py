"""Replicas: none failed within the last day without success since; and what the breaker keeps from being tried."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.quantity import count_of
from fleetctl.documents.time_text import clock_text
from fleetctl.planner.failures import Cools, failed_lately, what_cools


def check(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield what cools of the fleet, if one was given, and the nodes that cool; then what else has failed."""
    seen, fleet = evidence.inventory, evidence.fleet
    cooling = list(what_cools(fleet, seen)) if fleet else []
    for one in cooling:
        yield _cools(one, f"since {clock_text(one.since, seen.observed_at)}: {one.why}")
    said = {one.name for one in cooling if not one.node}
    for failed in failed_lately(seen, fleet.name if fleet else None):
        if failed.model not in said:
            at = f", the latest at {clock_text(failed.last, seen.observed_at)}" if failed.last else ""
            where = f" ({failed.nodes})" if failed.nodes else ""
            yield Diagnosed(
                code="FAILED_LATELY", severity="warning", area="replica", subject=failed.model,
                message=f"{count_of(failed.count, 'replica')} failed within the last day{at}, and none is ready since: "
                        f"{failed.why}{where}",
                advice="its log says more", command=_logs(failed.model))


def _cools(one: Cools, message: str) -> Diagnosed:
    if one.node:
        kind = "node" if one.node == one.name else "card"
        return Diagnosed(
            code=f"{kind.upper()}_COOLING", severity="warning", area="node", subject=one.name, message=message,
            advice=f"several models failed there and nowhere else; once the {kind} is good again, say so",
            command=f"fleetctl uncordon {shlex.quote(one.node)}")
    return Diagnosed(
        code="COOLING_DOWN", severity="warning", area="replica", subject=one.name, message=message,
        advice="its log says more; another spec is tried at once, this one with --ignore-cooldown",
        command=_logs(one.name))


def _logs(model: str) -> str:
    return f"fleetctl logs {shlex.quote(model)}"
