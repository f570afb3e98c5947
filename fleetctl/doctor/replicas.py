"""Checks of the replicas: none is lost, keeps restarting, has failed, or runs an older fleetctl."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fleetctl.doctor.evidence import Evidence
from fleetctl.documents.base import as_datetime, clock_text
from fleetctl.documents.diagnosis import Diagnosed
from fleetctl.documents.inventory import LIVE_STATES, Replica, dead_node_ids, is_lost
from fleetctl.documents.names import command_line
from fleetctl.documents.quantity import count_of, grouped, version_numbers
from fleetctl.planner.failures import Cools, failed_lately, what_cools
from fleetctl.planner.live import paused_text, resume_command
from fleetctl.version import __version__

MANY_RESTARTS = 3


def check_lost(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the replicas that Ray considers live but that cannot serve."""
    dead = dead_node_ids(evidence.inventory)
    for replica in _live_replicas(evidence):
        if is_lost(replica, dead):
            why = "its node is dead" if replica.constructed else "its constructor never returned"
            yield Diagnosed(
                code="REPLICA_LOST", severity="error", area="replica", subject=_name(replica),
                message=f"{why}: it cannot serve, and does not count as live",
                advice="the next apply starts another; evict this one to remove it from Ray",
                command=command_line("fleetctl evict", [_name(replica)]))


def check_readiness(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the replicas that were ready and no longer answer their readiness probe."""
    for replica in _live_replicas(evidence):
        if replica.not_ready_since:
            since = clock_text(replica.not_ready_since, evidence.inventory.observed_at)
            yield Diagnosed(
                code="NO_LONGER_READY", severity="error", area="replica", subject=_name(replica),
                message=f"it has not been ready since {since}: {replica.not_ready_reason}",
                advice="it counts as live, but gets no requests, and nothing restarts it; see its log, then restart it",
                command=command_line("fleetctl logs", [_name(replica)]))


def check_restarts(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the replicas that are being restarted, or were restarted at least MANY_RESTARTS times."""
    dead = dead_node_ids(evidence.inventory)
    for replica in _live_replicas(evidence):
        restarting = replica.state == "RESTARTING"
        if is_lost(replica, dead) or not (restarting or replica.in_a_row >= MANY_RESTARTS):
            continue
        why = f" ({replica.error})" if replica.error else ""
        yield Diagnosed(
            code="REPLICA_RESTARTS", severity="warning", area="replica", subject=_name(replica),
            message=(f"it is being restarted (restart {replica.in_a_row or 1}){why}" if restarting
                     else f"it was restarted {replica.in_a_row} times"),
            advice="see its log for the cause; after its last restart (`restart.max`) it ends",
            command=command_line("fleetctl logs", [_name(replica)]))


def check_caches(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the replicas whose engines compile because their caches could not be used, or are not exchanged."""
    for replica in _live_replicas(evidence):
        found = [member.caches.trouble for member in replica.members if member.caches and member.caches.trouble]
        if found:
            yield Diagnosed(
                code="CACHES_UNUSED", severity="warning", area="replica", subject=_name(replica),
                message=f"its compile caches were not used: {found[0]}",
                advice="its engine has compiled, which took longer and changes nothing else; engine.version names "
                       "a command if its version is not known",
                command=command_line("fleetctl logs", [_name(replica)]))


def _live_replicas(evidence: Evidence) -> Iterator[Replica]:
    """Yield the HOT replicas that Ray considers live: those of the given fleet, or of all fleets if none is given."""
    for replica in evidence.inventory.replicas:
        by_fleetctl = replica.level == "HOT" and replica.fleet and replica.replica_id is not None
        if by_fleetctl and replica.state in LIVE_STATES and (
                evidence.fleet is None or replica.fleet == evidence.fleet.name):
            yield replica


def _name(replica: Replica) -> str:
    return f"{replica.model}/{replica.replica_id}"


def check_failures(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the cooling models, nodes and cards of the fleet, if one is given; then the other models with failures."""
    seen, fleet = evidence.inventory, evidence.fleet
    cooling = list(what_cools(fleet, seen)) if fleet else []
    for item in cooling:
        yield _cooling(item, f"since {clock_text(item.since, seen.observed_at)}: {item.why}")
    cooling_models = {item.name for item in cooling if not item.node}
    for failed in failed_lately(seen, fleet.name if fleet else None):
        if failed.model not in cooling_models:
            at = f", the latest at {clock_text(failed.last, seen.observed_at)}" if failed.last else ""
            nodes = f" ({failed.nodes})" if failed.nodes else ""
            yield Diagnosed(
                code="FAILED_LATELY", severity="warning", area="replica", subject=failed.model,
                message=f"{count_of(failed.count, 'replica')} failed within the last day{at}, and none became ready "
                        f"since then: {failed.why}{nodes}",
                advice="see its log for more", command=command_line("fleetctl logs", [failed.model]))


LONG_S = 24 * 3600


def check_pauses(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield the pauses that hold: those without an end and those older than a day may be forgotten."""
    seen = evidence.inventory
    for pause in seen.pauses:
        if evidence.fleet is not None and pause.fleet != evidence.fleet.name:
            continue
        lasts_s = (as_datetime(seen.observed_at) - as_datetime(pause.since)).total_seconds()
        forgotten = " It has no end: is it forgotten?" if pause.until is None else (
            " It has lasted for more than a day: is it still needed?" if lasts_s > LONG_S else "")
        yield Diagnosed(
            code="PAUSED", severity="warning", area="replica", subject=pause.model or f"fleet {pause.fleet}",
            message=f"{paused_text(pause, seen.observed_at)}; applies start nothing for it",
            advice=f"resume it when what it was paused for is over.{forgotten}", command=resume_command(pause))


def _cooling(item: Cools, message: str) -> Diagnosed:
    if item.node:
        kind = "node" if item.node == item.name else "card"
        return Diagnosed(
            code=f"{kind.upper()}_COOLING", severity="warning", area="node", subject=item.name, message=message,
            advice=f"several models failed there and nowhere else; once the {kind} works again, uncordon it",
            command=f"fleetctl uncordon {shlex.quote(item.node)}")
    return Diagnosed(
        code="COOLING_DOWN", severity="warning", area="replica", subject=item.name, message=message,
        advice="see its log for more; a changed spec is tried at once, this one with --ignore-cooldown",
        command=command_line("fleetctl logs", [item.name]))


def check_agents(evidence: Evidence) -> Iterator[Diagnosed]:
    """Yield each older version with its replicas: a replica keeps the code it was started with."""
    own = version_numbers(__version__)
    by_version = grouped(
        (replica.tool_version, _name(replica)) for replica in evidence.inventory.replicas
        if replica.fleet and replica.tool_version and version_numbers(replica.tool_version) < own)
    for version, names in sorted(by_version.items()):
        yield Diagnosed(
            code="AGENT_OLD", severity="warning", area="replica", subject=names[0],
            message=f"{count_of(len(names), 'replica')} started by fleetctl {version}; this is {__version__}: "
                    f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}",
            advice="they serve as before, without the fixes since then; evict them one by one and apply",
            command=command_line("fleetctl evict", names[:1], "--dry-run"))
