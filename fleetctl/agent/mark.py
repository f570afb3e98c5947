"""What a replica tells about itself: its name, its mark while starting, its repr once up. Nothing secret."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Sequence

MARK_VERSION = 1
FAILURE_PREFIX = "FLEETCTL_FAILED "
_PLANNED = ("group", "copy", "role", "rank", "nodeId", "slot", "gpus", "vram", "cpus", "memory")


def compact(value: Any) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def actor_name(model: str, replica_id: int) -> str:
    """Return the name that fences a replica: it can exist once."""
    return f"ModelActor:{model}:{replica_id}"


def mark_variables(replica: Mapping[str, Any]) -> Dict[str, str]:
    """Return the variables for the actor's `runtime_env`, which the state API serves while it starts."""
    members = [{key: member[key] for key in _PLANNED if key in member} for member in replica["members"]]
    return {
        "FLEETCTL_FLEET": str(replica["fleet"]),
        "FLEETCTL_MODEL": str(replica["model"]),
        "FLEETCTL_REPLICA_ID": str(replica["replicaId"]),
        "FLEETCTL_SPEC_HASH": str(replica["specHash"]),
        "FLEETCTL_MEMBERS": compact(members),
    }


def describe(replica: Mapping[str, Any], members: Sequence[Mapping[str, Any]]) -> str:
    """Return the `repr` of a replica that is up: where each member sits, on which cards and which port."""
    return compact({
        "v": MARK_VERSION,
        "fleet": replica["fleet"],
        "specHash": replica["specHash"],
        "members": list(members),
    })


def injected_variables(
    replica: Mapping[str, Any], member: Mapping[str, Any], group_size: int, port: int, leader_host: str,
    leader_port: int,
) -> Dict[str, str]:
    """Return the FLEETCTL_ variables that every engine finds in its environment."""
    return {
        "FLEETCTL_MODEL": str(replica["model"]),
        "FLEETCTL_REPLICA_ID": str(replica["replicaId"]),
        "FLEETCTL_GROUP": str(member["group"]),
        "FLEETCTL_COPY": str(member["copy"]),
        "FLEETCTL_RANK": str(member["rank"]),
        "FLEETCTL_GROUP_SIZE": str(group_size),
        "FLEETCTL_LEADER_ADDRESS": leader_host,
        "FLEETCTL_LEADER_PORT": str(leader_port),
        "FLEETCTL_PORT": str(port),
    }


def encode_failure(code: str, message: str) -> str:
    """Pack a failure so that it survives Ray's wrapping of constructor errors; `decode_failure` unpacks it."""
    return FAILURE_PREFIX + json.dumps({"code": code, "message": message})


def decode_failure(text: str) -> "tuple[str, str]":
    """Return (code, message) from an error text of Ray; what is not ours is REPLICA_DIED with Ray's own first line."""
    for line in reversed(text.splitlines()):
        _, found, packed = line.partition(FAILURE_PREFIX)
        if found:
            try:
                failure, _ = json.JSONDecoder().raw_decode(packed)
                return str(failure["code"]), str(failure["message"])
            except (ValueError, KeyError, TypeError):
                continue
    lines: List[str] = [line.strip() for line in text.splitlines() if line.strip()]
    return "REPLICA_DIED", lines[0] if lines else "Ray gave no reason"
