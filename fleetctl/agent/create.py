"""Create one replica: re-check what the plan says, then one call. Kills nothing but what it has just created itself."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, NamedTuple, Set

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import world
from .claims import format_claim, member_options
from .gang import GangCoordinator
from .mark import actor_name, mark_variables
from .replica import ModelActor

SETTLE_S = 3.0
"""Ray's free resources are reported with a delay; a shortfall must last this long to count."""


class NotCreated(Exception):
    """The replica was not created; `code` and the message say why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class CreatedHere(NamedTuple):
    """A replica that this very run has created. The only thing the agent may take back."""

    name: str
    handle: Any
    actor_id: str
    claim: str


def check(action: Mapping[str, Any], not_counted: Set[int]) -> None:
    """Re-check a planned replica against the cluster as it is now; raises NotCreated."""
    names = world.taken_names()
    name = actor_name(action["model"], action["replicaId"])
    if name in names:
        raise NotCreated("NAME_TAKEN", f"{name} exists already")
    live = world.live_ids(action["model"], names, not_counted)
    if len(live) >= int(action["wanted"]):
        raise NotCreated("TARGET_REACHED", f"{len(live)} of {action['wanted']} are already live")
    for member in action["members"]:
        trouble = world.dead_or_draining(member["nodeId"])
        if trouble:
            raise NotCreated("NODE_GONE", f"{member['node']}: {trouble}")
    _check_free(action["members"])


def _check_free(members: List[Mapping[str, Any]]) -> None:
    deadline = time.monotonic() + SETTLE_S
    while True:
        short = world.shortfalls(members)
        if not short:
            return
        if time.monotonic() >= deadline:
            raise NotCreated("NODE_TAKEN", "; ".join(short))
        time.sleep(0.25)


def create(replica: Dict[str, Any]) -> CreatedHere:
    """Create the replica's detached actor and return it; raises NotCreated when the name was taken meanwhile.

    The name decides: it exists once, so whoever else creates the same replica, only one of the two comes to be.
    """
    members = replica["members"]
    single = len(members) == 1
    name = actor_name(replica["model"], replica["replicaId"])
    options: Dict[str, Any] = member_options(members[0]) if single else {"num_cpus": 0, "num_gpus": 0}
    try:
        handle = ray.remote(ModelActor if single else GangCoordinator).options(
            name=name,
            lifetime="detached",
            max_restarts=int(replica["lifecycle"]["restartMax"]),
            scheduling_strategy=NodeAffinitySchedulingStrategy(members[0]["nodeId"], soft=False),
            runtime_env={"env_vars": mark_variables(replica)},
            **options,
        ).remote(replica)
    except ValueError as error:
        if name in world.taken_names():
            raise NotCreated("NAME_TAKEN", f"{name} exists already") from None
        raise NotCreated("REFUSED_BY_RAY", str(error).splitlines()[0]) from None
    claim = "; ".join(f"{format_claim(member)} on {member['node']}" for member in members)
    return CreatedHere(name, handle, handle._actor_id.hex(), claim)


def take_back(created: CreatedHere) -> None:
    """Take back a replica that this run created and that Ray gave no worker in time: nothing of it has run."""
    ray.kill(created.handle, no_restart=True)
