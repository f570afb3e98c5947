"""A replica's description of itself: its name, and its repr once it is up. No secrets."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from typing import Any, Dict, Optional, Sequence

from .messages import FailedStart, Mark, Member, Place, Replica
from .wire import document_of, parse

INJECTED = (
    "FLEETCTL_MODEL", "FLEETCTL_REPLICA_ID", "FLEETCTL_GROUP", "FLEETCTL_COPY", "FLEETCTL_RANK", "FLEETCTL_GROUP_SIZE",
    "FLEETCTL_LEADER_ADDRESS", "FLEETCTL_LEADER_PORT", "FLEETCTL_PORT",
)
"""All of these are in the environment of an engine and of every process it starts."""


def utc_now() -> str:
    """Return the time in UTC, RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def moment(seconds: float) -> str:
    """Return a time since the epoch in UTC, RFC 3339 with milliseconds, so that texts sort by time."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def compact(value: Any) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def actor_name(model: str, replica_id: int) -> str:
    """Return the unique name of a replica's actor; Ray lets it exist only once."""
    return f"ModelActor:{model}:{replica_id}"


def warm_name(model: str, replica_id: int) -> str:
    """Return the name of the actor that keeps the weights of a WARM replica in memory."""
    return f"WarmReplica:{model}:{replica_id}"


def place_of(member: Member) -> Place:
    """Return the place of a member as planned: its claim, seat and node."""
    return Place(member.slot, member.gpus, member.vram, member.cpus, member.memory, member.group, member.copy,
                 member.role, member.rank, member.node_id)


def describe(
    replica: Replica, places: Sequence[Place], ready_at: str, *, failed: Optional[FailedStart] = None,
    uncounted: Optional[int] = None,
) -> str:
    """Return the `repr` of a replica that is up: since when, and each member's claim, node, cards and port.

    `failed` = the failure of a replica that is about to end itself by force; Ray asks for the repr just before that.
    `uncounted` = as in Mark.
    """
    return compact(document_of(Mark(
        fleet=replica.fleet, namespace=replica.namespace, spec_hash=replica.spec_hash, engine_hash=replica.engine_hash,
        ready_at=ready_at, restart_max=replica.lifecycle.restart_max, restarts_uncounted=uncounted,
        earlier_tries=replica.earlier_tries or None, failed=failed, members=places)))


def read_mark(text: str) -> Optional[Mark]:
    """Return what a repr says; None if it is empty, or not one that this release reads."""
    try:
        return parse(Mark, json.loads(text))
    except (ValueError, RecursionError):
        return None


def injected_variables(
    replica: Replica, member: Member, group_size: int, port: int, leader_host: str, leader_port: int
) -> Dict[str, str]:
    """Return the INJECTED variables, in their order."""
    values = (replica.model, replica.replica_id, member.group, member.copy, member.rank, group_size, leader_host,
              leader_port, port)
    return dict(zip(INJECTED, map(str, values)))
