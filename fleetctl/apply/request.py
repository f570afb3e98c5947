"""The request to the agent: the plan, and what it does not contain (job, lock, parallelism, logs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetctl.apply.prepare import awaited
from fleetctl.apply.record import apply_record
from fleetctl.documents.plan import Plan
from fleetctl.inventory.engine_log import log_name
from fleetctl.version import __version__


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """Flags of apply that the agent needs. Seconds. `wait` = until all is ready, not only created.

    `not_awaited` = ids of replicas of the planned models that are not waited for, whatever their state.
    """

    parallelism: int = 10
    lock_timeout_s: float = 0.0
    single_use: bool = False
    wait: bool = True
    not_awaited: tuple[int, ...] = ()


def apply_request(plan: Plan, job: str, who: str, options: ApplyOptions, *, may_replan: bool) -> dict[str, Any]:
    """Return the request for `apply`; `may_replan` = a client waits to plan around what the agent finds."""
    return {
        **plan_request(plan),
        "namespace": plan.fleet.namespace,
        "job": job,
        "holder": {"job": job, "who": who, "planId": plan.plan_id},
        "toolVersion": __version__,
        "parallelism": options.parallelism,
        "lockTimeout": options.lock_timeout_s,
        "singleUse": options.single_use,
        "wait": options.wait,
        "mayReplan": may_replan,
        "await": [
            {"key": row.key, "lifecycle": {"startupTimeout": row.startup_timeout},
             **({"but": list(options.not_awaited)} if options.not_awaited else {})} for row in awaited(plan)
        ],
    }


def plan_request(plan: Plan) -> dict[str, Any]:
    """Return the part of a request that comes from the plan alone; a later plan of the same run replaces it."""
    return {
        "plan": plan.model_dump(mode="json", by_alias=True),
        "record": apply_record(plan),
        "logs": {
            f"{action.id}|{member.group}|{member.copy_index}|{member.rank}": log_name(
                plan.fleet.namespace, action.model, action.replica_id, member.group, member.copy_index, member.rank)
            for action in plan.actions for member in action.members
        },
    }
