"""Create one replica: re-check the plan against the cluster, then make one call. Kills only its own creation."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, Dict, List, Mapping, NamedTuple, Set

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import cluster
from .arguments import in_parts
from .claims import format_claim, member_options
from .failure import Refused
from .gang import GangCoordinator
from .guarded import supervisor_source
from .mark import actor_name, warm_name
from .replica import ModelActor


class CreatedHere(NamedTuple):
    """A replica that this run has created; an apply may take back nothing else.

    `free_before` = Ray's free resources on its nodes just before, by node id. `at_ms` = milliseconds since the epoch.
    """

    name: str
    handle: Any
    actor_id: str
    claim: str
    free_before: Mapping[str, cluster.Amounts]
    at_ms: int


def ranks_of(group: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    """Return the members by rank: the leader (or the one Standalone) is 0, then the Workers in file order."""
    leaders = [member for member in group["members"] if member.get("role", "Standalone") != "Worker"]
    workers = [member for member in group["members"] if member.get("role") == "Worker"]
    return [*leaders, *(worker for worker in workers for _ in range(int(worker.get("count", 1))))]


def replica_of(plan: Mapping[str, Any], action: Mapping[str, Any], logs: Mapping[str, str]) -> Dict[str, Any]:
    """Return the planned action with the engine, log and supervisor of each member.

    `logs` maps `<action>|<group>|<copy>|<rank>` to the name of the log file.
    """
    groups = {group["name"]: ranks_of(group) for group in plan["specs"][action["specHash"]]["workers"]}
    replica = {key: action[key] for key in ("id", "model", "replicaId", "specHash", "wanted", "lifecycle")}
    replica["op"] = action.get("op", "create")
    if "engineHash" in action:
        replica["engineHash"] = action["engineHash"]
    replica["fleet"], replica["namespace"] = plan["fleet"]["name"], plan["fleet"]["namespace"]
    supervisor = supervisor_source()
    replica["members"] = [
        dict(member, engine=groups[member["group"]][int(member["rank"])]["engine"], supervisor=supervisor,
             log=logs[f"{action['id']}|{member['group']}|{member['copy']}|{member['rank']}"])
        for member in action["members"]
    ]
    return replica


def check(replica: Mapping[str, Any], not_counted: Set[int]) -> None:
    """Re-check a planned replica against the current cluster; raises Refused.

    Only a promotion may use the id of a WARM replica, which ends itself once the new one is ready.
    NODE_TAKEN may pass soon: Ray reports its free resources with a delay.
    """
    names = cluster.taken_names()
    name = actor_name(replica["model"], replica["replicaId"])
    warm = warm_name(replica["model"], replica["replicaId"])
    for taken in (name,) if replica.get("op") == "promote" else (name, warm):
        if taken in names:
            raise Refused("NAME_TAKEN", f"{taken} already exists")
    live = cluster.live_ids(replica["model"], names, not_counted)
    if len(live) >= int(replica["wanted"]):
        raise Refused("TARGET_REACHED", f"{len(live)} of {replica['wanted']} are already live")
    members: List[Mapping[str, Any]] = replica["members"]
    for node_id, node in {member["nodeId"]: member["node"] for member in members}.items():
        trouble = cluster.node_trouble(node_id)
        if trouble:
            raise Refused(trouble[0], f"{node}: {trouble[1]}")
    short = cluster.shortfalls(members)
    if short:
        raise Refused("NODE_TAKEN", "; ".join(short))


@lru_cache(maxsize=None)
def remote_class(plain: type) -> Any:
    """Return the Ray class of a plain one, shared by all replicas: Ray packs and sends each new class again."""
    return ray.remote(plain)


def create(replica: Dict[str, Any]) -> CreatedHere:
    """Create the replica's detached actor; raises Refused if its name has been taken since the check, or Ray refuses.

    The name is unique: if two applies create the same replica, only one succeeds.
    """
    members = replica["members"]
    single = len(members) == 1
    name = actor_name(replica["model"], replica["replicaId"])
    options: Dict[str, Any] = member_options(members[0]) if single else {"num_cpus": 0, "num_gpus": 0}
    free, now_ms = cluster.free_by_node(), int(time.time() * 1000)
    try:
        handle = remote_class(ModelActor if single else GangCoordinator).options(
            name=name,
            lifetime="detached",
            max_restarts=int(replica["lifecycle"]["restartMax"]),
            scheduling_strategy=NodeAffinitySchedulingStrategy(members[0]["nodeId"], soft=False),
            **options,
        ).remote(*in_parts(replica))
    except ValueError as error:
        if name in cluster.taken_names():
            raise Refused("NAME_TAKEN", f"{name} already exists") from None
        raise Refused("REFUSED_BY_RAY", str(error).splitlines()[0]) from None
    claim = "; ".join(f"{format_claim(member)} on {member['node']}" for member in members)
    before = {member["nodeId"]: free.get(member["nodeId"], {}) for member in members}
    return CreatedHere(name, handle, handle._actor_id.hex(), claim, before, now_ms)


def take_back(created: CreatedHere) -> None:
    """Take back a replica that this run created and Ray gave no worker in time: none of its code has run."""
    ray.kill(created.handle, no_restart=True)
