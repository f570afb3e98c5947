"""From an action of the plan to what an actor is given: each member with its engine, log file and lifecycle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping

SUPERVISOR = Path(__file__).with_name("supervisor.py")


def ranks_of(group: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    """Return the members by rank: 0 the leader (or the one Standalone), then the Workers in file order."""
    leaders = [member for member in group["members"] if member.get("role", "Standalone") != "Worker"]
    workers = [member for member in group["members"] if member.get("role") == "Worker"]
    return [*leaders, *(worker for worker in workers for _ in range(int(worker.get("count", 1))))]


def replica_of(plan: Mapping[str, Any], action: Mapping[str, Any], logs: Mapping[str, str]) -> Dict[str, Any]:
    """Return what the replica's actor needs; `logs` names log files by `<action>|<group>|<copy>|<rank>`."""
    groups = {group["name"]: ranks_of(group) for group in plan["specs"][action["specHash"]]["workers"]}
    replica = {key: action[key] for key in ("id", "model", "replicaId", "specHash", "wanted", "lifecycle")}
    replica["fleet"], replica["namespace"] = plan["fleet"]["name"], plan["fleet"]["namespace"]
    supervisor = SUPERVISOR.read_text(encoding="utf-8")
    replica["members"] = [
        dict(member, engine=groups[member["group"]][int(member["rank"])]["engine"], supervisor=supervisor,
             log=logs[f"{action['id']}|{member['group']}|{member['copy']}|{member['rank']}"])
        for member in action["members"]
    ]
    return replica
