"""What the agent is asked: the plan as it stands, and what it does not say (job, lock, parallelism, logs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetctl.apply.prepare import awaited
from fleetctl.apply.record import apply_record
from fleetctl.documents.plan import Plan
from fleetctl.inventory.log_name import log_name
from fleetctl.version import __version__


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """Flags of apply that the agent needs. Seconds."""

    parallelism: int = 10
    lock_timeout_s: float = 0.0
    single_use: bool = False


def apply_request(plan: Plan, job: str, who: str, options: ApplyOptions) -> dict[str, Any]:
    """Return the request for `apply`."""
    return {
        "plan": plan.model_dump(mode="json", by_alias=True),
        "namespace": plan.fleet.namespace,
        "job": job,
        "holder": {"job": job, "who": who, "planId": plan.plan_id},
        "toolVersion": __version__,
        "record": apply_record(plan),
        "parallelism": options.parallelism,
        "lockTimeout": options.lock_timeout_s,
        "singleUse": options.single_use,
        "await": [
            {"key": row.key, "lifecycle": {"startupTimeout": row.startup_timeout}} for row in awaited(plan)
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
