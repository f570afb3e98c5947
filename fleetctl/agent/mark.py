"""A replica's description of itself: its name, its planned claims, and its repr once it is up. No secrets."""

from __future__ import annotations

import json
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

MARK_VERSION = 1
PLANNED = ("slot", "gpus", "vram", "cpus", "memory")
"""The planned claim of a member, repeated in the repr so that no other record is needed."""

INJECTED = (
    "FLEETCTL_MODEL", "FLEETCTL_REPLICA_ID", "FLEETCTL_GROUP", "FLEETCTL_COPY", "FLEETCTL_RANK", "FLEETCTL_GROUP_SIZE",
    "FLEETCTL_LEADER_ADDRESS", "FLEETCTL_LEADER_PORT", "FLEETCTL_PORT",
)
"""All of these are in the environment of an engine and of every process it starts."""


def utc_now() -> str:
    """Return the time in UTC, RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def compact(value: Any) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def actor_name(model: str, replica_id: int) -> str:
    """Return the unique name of a replica's actor; Ray lets it exist only once."""
    return f"ModelActor:{model}:{replica_id}"


def warm_name(model: str, replica_id: int) -> str:
    """Return the name of the actor that keeps the weights of a WARM replica in memory."""
    return f"WarmReplica:{model}:{replica_id}"


def describe(
    replica: Mapping[str, Any], places: Sequence[Mapping[str, Any]], ready_at: str, *,
    failed: Optional[Mapping[str, Any]] = None,
) -> str:
    """Return the `repr` of a replica that is up: since when, and each member's claim, node, cards and port.

    `failed` = the failure of a replica that is about to end itself by force; Ray asks for the repr just before that.
    """
    return compact({
        "v": MARK_VERSION,
        "fleet": replica["fleet"],
        "namespace": replica["namespace"],
        "specHash": replica["specHash"],
        **({"engineHash": replica["engineHash"]} if "engineHash" in replica else {}),
        "readyAt": ready_at,
        "restartMax": replica["lifecycle"]["restartMax"],
        **earlier_tries(replica),
        **({"failed": failed} if failed else {}),
        "members": [_with_claim(replica["members"], place) for place in places],
    })


def earlier_tries(replica: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the actor ids of the earlier tries of a replica that was created again on other cards."""
    return {"earlierTries": replica["earlierTries"]} if "earlierTries" in replica else {}


def _with_claim(members: Sequence[Mapping[str, Any]], place: Mapping[str, Any]) -> Dict[str, Any]:
    planned: List[Mapping[str, Any]] = [member for member in members if seat_of(member) == seat_of(place)]
    claim = {key: planned[0][key] for key in PLANNED if key in planned[0]} if planned else {}
    return {**claim, **place}


def seat_of(member: Mapping[str, Any]) -> "tuple[Any, ...]":
    """Return the key of a member within its replica, from a plan or a place."""
    return member["group"], member["copy"], member["rank"]


def injected_variables(
    replica: Mapping[str, Any], member: Mapping[str, Any], group_size: int, port: int, leader_host: str,
    leader_port: int,
) -> Dict[str, str]:
    """Return the INJECTED variables, in their order."""
    values = (replica["model"], replica["replicaId"], member["group"], member["copy"], member["rank"], group_size,
              leader_host, leader_port, port)
    return dict(zip(INJECTED, map(str, values)))
