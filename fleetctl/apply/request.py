"""What the agent is asked: the plan as it stands, and what it does not say (job, lock, parallelism, log names)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.apply.log_name import log_name
from fleetctl.documents.plan import Plan
from fleetctl.version import __version__

DEFAULT_STARTUP_S = 1800.0


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """Flags of apply that the agent needs. Seconds."""

    parallelism: int = 10
    lock_timeout_s: float = 0.0
    single_use: bool = False


def apply_request(
    plan: Plan, job: str, who: str, options: ApplyOptions, startup_timeouts_s: Mapping[str, float]
) -> dict[str, Any]:
    """Return the request for `apply`. `startup_timeouts_s` by model, for the replicas that start already."""
    return {
        "plan": plan.model_dump(mode="json", by_alias=True),
        "namespace": plan.fleet.namespace,
        "job": job,
        "holder": {"job": job, "who": who, "planId": plan.plan_id},
        "toolVersion": __version__,
        "parallelism": options.parallelism,
        "lockTimeout": options.lock_timeout_s,
        "singleUse": options.single_use,
        "await": [
            {"key": row.key, "lifecycle": {"startupTimeout": startup_timeouts_s.get(row.key, DEFAULT_STARTUP_S)}}
            for row in plan.models if row.wanted > 0 and row.starting > 0
        ],
        "logs": {
            f"{action.id}|{member.group}|{member.copy_index}|{member.rank}": log_name(
                plan.fleet.namespace, action.model, action.replica_id, member.group, member.copy_index, member.rank)
            for action in plan.actions for member in action.members
        },
    }


def evict_request(
    fleet: str, namespace: str, model: str, replica_id: int, job: str, who: str, lock_timeout_s: float
) -> dict[str, Any]:
    """Return the request for `evict`."""
    return {
        "fleet": fleet, "namespace": namespace, "model": model, "replicaId": replica_id, "job": job,
        "holder": {"job": job, "who": who}, "toolVersion": __version__, "lockTimeout": lock_timeout_s,
    }
