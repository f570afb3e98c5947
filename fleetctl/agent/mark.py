"""A replica's description of itself: its name, and its repr once it is up. No secrets."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import time
from datetime import datetime, timezone
from typing import Any, Dict, Optional, Sequence, Tuple

from .messages import FailedStart, Mark, Member, Place, Replica
from .ports import host_port
from .wire import document_of, parse

MARKED = (
    "FLEETCTL_MODEL", "FLEETCTL_REPLICA_ID", "FLEETCTL_GROUP", "FLEETCTL_COPY", "FLEETCTL_RANK", "FLEETCTL_GROUP_SIZE",
    "FLEETCTL_LEADER_ADDRESS", "FLEETCTL_LEADER_PORT", "FLEETCTL_PORT",
)
"""All of these are in the environment of an engine and of every process it starts, also of one from an earlier release:
a process with all of them belongs to an engine. No variable is added here."""
SHARE = 10_000
NAME_LENGTH, GROUP_SHOWN = 63, 20


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


def evict_command(replica: str) -> str:
    """Return the command that ends a replica by its name, MODEL/ID; after `--` a name is never read as a flag."""
    return f"fleetctl evict {'-- ' if replica.startswith('-') else ''}{shlex.quote(replica)}"


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


def injected_variables(replica: Replica, member: Member, place: Place, leader: Tuple[str, int]) -> Dict[str, str]:
    """Return the FLEETCTL_ variables that every member has: the MARKED ones first.

    `place` has the member's address and port, `leader` the address of rank 0 and its port for the gang.
    """
    gang = [one for one in replica.members if (one.group, one.copy) == (member.group, member.copy)]
    values = (replica.model, replica.replica_id, member.group, member.copy, member.rank, len(gang), *leader, place.port)
    first = sum(_ranks_in(one) for one in gang if one.rank < member.rank)
    return {
        **dict(zip(MARKED, map(str, values))),
        "FLEETCTL_NAME": name_of(replica, member),
        "FLEETCTL_HOST": place.ip,
        "FLEETCTL_ENDPOINT": host_port(place.ip, place.port or 0),
        "FLEETCTL_NODE": member.node,
        "FLEETCTL_LEADER_ENDPOINT": host_port(*leader),
        "FLEETCTL_RANKS": ",".join(map(str, range(first, first + _ranks_in(member)))),
    }


def _ranks_in(member: Member) -> int:
    """Return how many ranks a member has for an engine that counts one for each card; the planner counts the same."""
    return max(1, member.gpus // SHARE)


def name_of(replica: Replica, member: Member) -> str:
    """Return a name for the member's engine: a DNS label, unique in the cluster, and the same after a restart.

    Its last part is a hash: different model keys may have the same letters and digits.
    """
    key = compact([replica.namespace, replica.model, replica.replica_id, member.group, member.copy, member.rank])
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    seat = f"-{replica.replica_id}-{member.group[:GROUP_SHOWN]}-{member.copy}-{member.rank}-{digest}"
    model = re.sub("[^a-z0-9]+", "-", replica.model.lower()).strip("-")
    return (model[:NAME_LENGTH - len(seat)].rstrip("-") + seat).lstrip("-")
