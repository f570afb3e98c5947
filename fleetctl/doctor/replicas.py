"""Checks of the replicas: none is lost, restarts or has failed, and none is of an older fleetctl."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.base import clock_text
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.inventory import LIVE_STATES, Replica, dead_node_ids, is_lost
from fleetctl.documents.quantity import count_of, grouped
from fleetctl.planner.failures import Cools, failed_lately, what_cools
from fleetctl.version import __version__

MANY_RESTARTS = 3


def check_lost(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield ours that are live for Ray and cannot serve."""
    dead = dead_node_ids(evidence.inventory)
    for replica in _ours(evidence):
        if is_lost(replica, dead):
            why = "its node is dead" if replica.constructed else "its constructor never returned"
            yield Diagnosed(
                code="REPLICA_LOST", severity="error", area="replica", subject=_name(replica),
                message=f"{why}: it cannot serve, and is not counted",
                advice="the next apply starts another; evict this one so that Ray forgets it",
                command=f"fleetctl evict {shlex.quote(_name(replica))}")


def check_restarts(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield ours that are being restarted, or were many times."""
    dead = dead_node_ids(evidence.inventory)
    for replica in _ours(evidence):
        restarting = replica.state == "RESTARTING"
        if is_lost(replica, dead) or not (restarting or replica.restarts >= MANY_RESTARTS):
            continue
        why = f" ({replica.error})" if replica.error else ""
        yield Diagnosed(
            code="REPLICA_RESTARTS", severity="warning", area="replica", subject=_name(replica),
            message=(f"it is being restarted, for the {replica.restarts or 1}. time{why}" if restarting
                     else f"it was restarted {replica.restarts} times"),
            advice="its log says why; after its last restart (`restart.max`) it is gone",
            command=f"fleetctl logs {shlex.quote(_name(replica))}")


def _ours(evidence: Evidence) -> Iterator[Replica]:
    """Yield the replicas of the fleet, of every fleet without one, that are HOT and live for Ray."""
    for replica in evidence.inventory.replicas:
        ours = replica.level == "HOT" and replica.fleet and replica.replica_id is not None
        if ours and replica.state in LIVE_STATES and (
                evidence.fleet is None or replica.fleet == evidence.fleet.name):
            yield replica


def _name(replica: Replica) -> str:
    return f"{replica.model}/{replica.replica_id}"


def check_failures(evidence: Evidence) -> Iterator[Diagnosed]:
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
                advice="its log says more", command=f"fleetctl logs {shlex.quote(failed.model)}")


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
        command=f"fleetctl logs {shlex.quote(one.name)}")


def check_agents(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each older version, with the replicas that have it: its code lives as long as they do."""
    by_version = grouped(
        (one.tool_version, _name(one)) for one in evidence.inventory.replicas
        if one.fleet and one.tool_version and _numbers(one.tool_version) < _numbers(__version__))
    for version, names in sorted(by_version.items()):
        yield Diagnosed(
            code="AGENT_OLD", severity="warning", area="replica", subject=names[0],
            message=f"{count_of(len(names), 'replica')} started by fleetctl {version}, this is {__version__}: "
                    f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}",
            advice="they serve as before, without what was mended since; evict them one by one and apply",
            command=f"fleetctl evict {shlex.quote(names[0])} --dry-run")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("+")[0].split(".") if part.isdecimal())
