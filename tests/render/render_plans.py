"""Small plans for the render tests."""

from __future__ import annotations

from typing import Any

from fleetctl.documents.plan import (
    Action,
    ActionMember,
    Certificate,
    Lifecycle,
    ModelRow,
    Plan,
    PlanFleet,
    PlanInventory,
    Summary,
)


def row(key: str, wanted: int, live: int, **counts: Any) -> ModelRow:
    return ModelRow(**{"key": key, "wanted": wanted, "live": live, "starting": 0, "create": 0, "blocked": 0,
                       "surplus": 0, "startup_timeout": 1800, "reason": "because", **counts})


def member(node: str, *, gpus: int = 0, cpus: int = 0, rank: int = 0) -> ActionMember:
    return ActionMember(group="main", copy_index=0, role="Standalone", rank=rank, node_id=node, node=node, slot=0,
                        gpus=gpus, vram=0, cpus=cpus, memory=0)


def create(model: str, replica_id: int, *members: ActionMember) -> Action:
    return Action(
        id=f"{model}/{replica_id}", op="create", model=model, replica_id=replica_id, spec_hash="abc", wanted=1,
        members=list(members),
        lifecycle=Lifecycle(startup_timeout=1, scheduling_timeout=1, restart_max=1, restart_backoff=1),
    )


def plan(**parts: Any) -> Plan:
    return Plan(**{
        "plan_id": "f" * 64, "tool_version": "0.1.0", "fleet": PlanFleet(name="lab"), "summary": Summary(),
        "inventory": PlanInventory(observed_at="2026-03-04T12:00:00Z", source="a test"),
        "certificate": Certificate(placed=0, wanted=0, upper_bound=0, status="optimal", method="nothing wanted"),
        "models": [], "exit_code": 0, **parts,
    })
