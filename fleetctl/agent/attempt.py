"""One replica from its check to its readiness. Each has its own outcome; a failure of one stops nothing else."""

from __future__ import annotations

import time
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Set

import ray

from . import world
from .create import CreatedHere, NotCreated, check, create, take_back
from .mark import actor_name, decode_failure

POLL_S = 0.25
ANSWER_S = 10.0
WORKER_S = 30.0
MARGIN_S = 120.0
"""Constructors enforce their own timeout; past it and this margin the agent stops waiting and says `starting`."""

Emit = Callable[..., None]
Stopped = Callable[[], bool]


def outcome(replica: Mapping[str, Any], kind: str, code: Optional[str] = None, message: str = "") -> Dict[str, Any]:
    """Return how it ended for one replica: ready, starting, failed, blocked or skipped."""
    nodes: List[str] = []
    for member in replica.get("members", []):
        if member["node"] not in nodes:
            nodes.append(member["node"])
    result = {"model": replica["model"], "replicaId": replica["replicaId"], "outcome": kind, "nodes": nodes,
              "message": message}
    if code:
        result["code"] = code
    return result


def mistake(replica: Mapping[str, Any], error: Exception) -> Dict[str, Any]:
    """Return the outcome of an error that nobody expected: it is this replica's alone."""
    return outcome(replica, "failed", "AGENT_ERROR", f"{error.__class__.__name__}: {error}".splitlines()[0])


def attempt(
    replica: Dict[str, Any], not_counted: Set[int], ours: Collection[str], scheduled: Callable[[], None], emit: Emit,
    stopped: Stopped,
) -> Dict[str, Any]:
    """Create one replica and wait until it is ready; `scheduled` is called once Ray chose its cards, or never will.

    `ours` = the fleets whose replicas count as this fleet's: its own name, and the one it adopts from.
    """
    begun = time.monotonic()
    try:
        check(replica, not_counted)
        if stopped():
            return outcome(replica, "skipped", "INTERRUPTED", "the apply was interrupted before this one began")
        created = create(replica)
    except NotCreated as refusal:
        return _explain(replica, refusal, ours, stopped)
    emit("replicaCreated", f"{replica['id']}: created on {_where(replica)}", model=replica["model"],
         replicaId=replica["replicaId"], nodes=outcome(replica, "starting")["nodes"])
    result = _wait_for_worker(replica, created, stopped)
    if result is None and len(replica["members"]) > 1:
        _wait_for_group(created, stopped)
    scheduled()
    result = result or wait_ready(replica, created.handle, stopped)
    result["seconds"] = round(time.monotonic() - begun, 2)
    return result


def _where(replica: Mapping[str, Any]) -> str:
    return ", ".join(outcome(replica, "starting")["nodes"])


def _explain(
    replica: Mapping[str, Any], refusal: NotCreated, ours: Collection[str], stopped: Stopped
) -> Dict[str, Any]:
    """Turn a refusal into an outcome; a name that exists means that somebody has created this very replica."""
    if refusal.code == "NAME_TAKEN":
        name = actor_name(replica["model"], replica["replicaId"])
        try:
            handle = ray.get_actor(name)
        except ValueError:
            return outcome(replica, "failed", "NAME_TAKEN", f"{refusal}, but it is gone again")
        return _await_other(replica, handle, ours, stopped)
    if refusal.code == "TARGET_REACHED":
        return outcome(replica, "skipped", refusal.code, str(refusal))
    return outcome(replica, "blocked", refusal.code, str(refusal))


def _await_other(
    replica: Mapping[str, Any], handle: Any, ours: Collection[str], stopped: Stopped
) -> Dict[str, Any]:
    """Wait for a replica that somebody else has created under our name, and count it only if it is our fleet's."""
    result = wait_ready(replica, handle, stopped)
    if result["outcome"] != "ready":
        return result
    try:
        fleet = ray.get(handle.fleet.remote(), timeout=ANSWER_S)
    except Exception:
        return outcome(replica, "blocked", "NAME_TAKEN", "its name belongs to an actor that carries no fleet's mark")
    if fleet in ours:
        return result
    return outcome(replica, "blocked", "CLAIMED_BY_FLEET", f"fleet {fleet} has just started a replica of this model")


def _wait_for_worker(replica: Mapping[str, Any], created: CreatedHere, stopped: Stopped) -> Optional[Dict[str, Any]]:
    """Return None once Ray has given the actor a worker; else the outcome, after taking the actor back."""
    timeout_s = float(replica["lifecycle"]["schedulingTimeout"])
    deadline = time.monotonic() + timeout_s
    while not stopped():
        record = world.actor_record(created.actor_id)
        if world.has_worker(record) or record.get("State") == "DEAD":
            return None
        if time.monotonic() >= deadline:
            take_back(created)
            short = "; ".join(world.shortfalls(replica["members"])) or "no reason known"
            return outcome(replica, "failed", "NODE_TAKEN",
                           f"Ray gave it no worker within {timeout_s:g} s: needs {created.claim}; {short}; taken back")
        time.sleep(POLL_S)
    return None


def _wait_for_group(created: CreatedHere, stopped: Stopped) -> None:
    """Return once a gang's placement group has its cards, or the gang has given up waiting for them."""
    while not stopped() and not world.group_is_granted(created.name):
        if world.actor_record(created.actor_id).get("State") in ("ALIVE", "DEAD", None):
            return
        time.sleep(POLL_S)


def wait_worker(replica: Mapping[str, Any], handle: Any, stopped: Stopped) -> Optional[Dict[str, Any]]:
    """Return None once a replica that was starting before has a worker; else say that it only waits for resources.

    It is not ours to take back: the run that created it is gone. A person can evict it.
    """
    deadline = time.monotonic() + WORKER_S
    while not stopped():
        record = world.actor_record(handle._actor_id.hex())
        if world.has_worker(record) or record.get("State") != "PENDING_CREATION":
            return None
        if time.monotonic() >= deadline:
            return outcome(replica, "starting", "NO_WORKER",
                           f"Ray has given it no worker for {WORKER_S:g} s: its node is full; it starts when there is"
                           f" room, or `fleetctl evict {replica['id']}` gives it up")
        time.sleep(POLL_S)
    return None


def wait_ready(replica: Mapping[str, Any], handle: Any, stopped: Stopped) -> Dict[str, Any]:
    """Wait until the actor is up, which is readiness, or DEAD, with the engine's last words.

    Its state is asked for first: a call to an actor that is just being restarted fails, and the actor comes back all
    the same. Then the actor itself: Ray says ALIVE for a moment even when the constructor has raised.
    """
    deadline = time.monotonic() + float(replica["lifecycle"]["startupTimeout"]) + MARGIN_S
    while not stopped() and time.monotonic() < deadline:
        state = world.actor_record(handle._actor_id.hex()).get("State", "DEAD")
        if state == "ALIVE" and _answers(handle):
            return _with_address(outcome(replica, "ready"), handle)
        if state == "DEAD":
            return outcome(replica, "failed", *_cause_of_death(handle))
        time.sleep(POLL_S)
    return outcome(replica, "starting", "STILL_STARTING", "it goes on by itself; `fleetctl status` shows it")


def _answers(handle: Any) -> bool:
    try:
        ray.get(handle.__ray_ready__.remote(), timeout=ANSWER_S)
    except Exception:  # it died or is being restarted: its state tells
        return False
    return True


def _cause_of_death(handle: Any) -> "tuple[str, str]":
    """Ask a dead actor why: Ray answers with the error of its constructor, or with how its process ended."""
    try:
        ray.get(handle.__ray_ready__.remote(), timeout=ANSWER_S)
    except Exception as error:
        return decode_failure(str(error))
    return "REPLICA_DIED", "it ended, and Ray gave no reason"


def _with_address(result: Dict[str, Any], handle: Any) -> Dict[str, Any]:
    """Add where the replica answers: its first member's host and port. A replica of an older agent may not tell."""
    try:
        first = ray.get(handle.where.remote(), timeout=ANSWER_S)[0]
        result["address"] = f"{first['ip']}:{first['port']}"
    except Exception:
        result["address"] = None
    return result
