"""Create one replica: re-check what the plan says, then one call. Kills nothing but what it has just created itself."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, Dict, List, Mapping, NamedTuple, Set

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import cluster
from .claims import format_claim, member_options
from .gang import GangCoordinator
from .mark import actor_name
from .replica import ModelActor


class NotCreated(Exception):
    """The replica was not created; `code` and the message say why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class CreatedHere(NamedTuple):
    """A replica that this very run has created. The only thing the agent may take back.

    `free_before` = what Ray had free on its nodes just before, by node id. `at_ms` is since the epoch.
    """

    name: str
    handle: Any
    actor_id: str
    claim: str
    free_before: Mapping[str, cluster.Amounts]
    at_ms: int


def check(replica: Mapping[str, Any], not_counted: Set[int]) -> None:
    """Re-check a planned replica against the cluster as it is now; raises NotCreated.

    NODE_TAKEN may pass: Ray reports its free resources with a delay.
    """
    names = cluster.taken_names()
    name = actor_name(replica["model"], replica["replicaId"])
    if name in names:
        raise NotCreated("NAME_TAKEN", f"{name} exists already")
    live = cluster.live_ids(replica["model"], names, not_counted)
    if len(live) >= int(replica["wanted"]):
        raise NotCreated("TARGET_REACHED", f"{len(live)} of {replica['wanted']} are already live")
    members: List[Mapping[str, Any]] = replica["members"]
    for node_id, node in {member["nodeId"]: member["node"] for member in members}.items():
        trouble = cluster.node_trouble(node_id)
        if trouble:
            raise NotCreated(trouble[0], f"{node}: {trouble[1]}")
    short = cluster.shortfalls(members)
    if short:
        raise NotCreated("NODE_TAKEN", "; ".join(short))


@lru_cache(maxsize=None)
def remote_class(plain: type) -> Any:
    """Return a class as Ray wants it, one for all replicas: each other one would be packed and sent anew."""
    return ray.remote(plain)


def create(replica: Dict[str, Any]) -> CreatedHere:
    """Create the replica's detached actor and return it; raises NotCreated when the name was taken meanwhile.

    The name decides: it exists once, so whoever else creates the same replica, only one of the two comes to be.
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
        ).remote(replica)
    except ValueError as error:
        if name in cluster.taken_names():
            raise NotCreated("NAME_TAKEN", f"{name} exists already") from None
        raise NotCreated("REFUSED_BY_RAY", str(error).splitlines()[0]) from None
    claim = "; ".join(f"{format_claim(member)} on {member['node']}" for member in members)
    before = {member["nodeId"]: free.get(member["nodeId"], {}) for member in members}
    return CreatedHere(name, handle, handle._actor_id.hex(), claim, before, now_ms)


def take_back(created: CreatedHere) -> None:
    """Take back a replica that this run created and that Ray gave no worker in time: nothing of it has run."""
    ray.kill(created.handle, no_restart=True)
