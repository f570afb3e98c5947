"""The agent's view just before it acts: nodes, free resources, actors, and claims as Ray resources.

It reads Ray's tables, not the dashboard.
"""

from __future__ import annotations

import math
import re
from typing import Any, Callable, Collection, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

import ray
from ray._private import state
from ray._raylet import GlobalStateAccessor  # type: ignore[attr-defined]  # it has no stub
from ray.core.generated import gcs_pb2

from .messages import Member

SHARE = 10_000
"""A plan's amounts of GPUs and CPUs are in 1/10000."""
PRESENCE = 0.001
SLACK = 1e-6
REPLICA_ID = re.compile("0|[1-9][0-9]{0,17}")
"""The ids allowed in `ModelActor:<key>:<id>`; any other name in the namespace is foreign."""

Amounts = Mapping[str, float]


class _Connection(List[Any]):
    """At most one connection. A process that unpickles this code opens its own."""

    def __reduce__(self) -> Any:
        return _Connection, ()


_accessor = _Connection()


class ActorRecord(NamedTuple):
    """Ray's record of one actor.

    `placed` = it has a worker process. `report` = its repr, empty until its constructor has returned. `death` = Ray's
    text for why it is DEAD. `restarts_left` = how many more times Ray restarts it, None = without a limit. `killed` =
    a call has ended it. `worker_id`, `pid` and `node_id` = its process, also once it is DEAD.
    """

    state: str
    placed: bool
    report: str
    death: str
    restarts: int = 0
    restarts_left: Optional[int] = 0
    killed: bool = False
    worker_id: str = ""
    pid: int = 0
    node_id: str = ""

    @property
    def is_up(self) -> bool:
        """Return whether its constructor has returned."""
        return self.state == "ALIVE" and bool(self.report)


GONE = ActorRecord("DEAD", False, "", "")


def accessor() -> Any:
    """Return a connection of our own to Ray's tables: the names of Ray's own functions vary between versions."""
    if not _accessor:
        if state.state.gcs_options is None:  # Ray would crash
            raise ConnectionError("this process is not connected to Ray")
        new = GlobalStateAccessor(state.state.gcs_options)
        new.connect()
        _accessor.append(new)
    return _accessor[0]


def alive_nodes() -> Dict[str, Mapping[str, str]]:
    """Return the labels of each living node, by node id."""
    return {str(record["NodeID"]): record.get("Labels") or {} for record in ray.nodes() if record["Alive"]}


def workers_at_once() -> Dict[str, int]:
    """Return how many workers Ray starts at a time on each living node, by node id: one for each of its CPUs."""
    return {str(record["NodeID"]): max(1, int(record["Resources"].get("CPU", 0)))
            for record in ray.nodes() if record["Alive"]}


class NodeNow(NamedTuple):
    """A node as the client needs it for a new plan: ALIVE, DRAINING or DEAD, and Ray's free resources."""

    node_id: str
    state: str
    free: Amounts


def nodes_now(free_on: Callable[[str], Amounts]) -> List[NodeNow]:
    """Return the state and the free resources of each node; `free_on` = what is free on one."""
    draining = draining_nodes()
    nodes = []
    for record in ray.nodes():
        node_id = record["NodeID"]
        node_state = "DEAD" if not record["Alive"] else "DRAINING" if node_id in draining else "ALIVE"
        free = free_on(node_id)
        amounts = {name: free.get(name, 0.0) for name in ("GPU", "CPU", "memory")}
        nodes.append(NodeNow(node_id, node_state, amounts))
    return nodes


def is_at(node_id: str, ip: str) -> bool:
    """Return whether a living node has this address, by Ray's own table and not by the words of an actor there."""
    return addresses().get(node_id) == ip


def addresses() -> Dict[str, str]:
    """Return the address of each living node, by node id."""
    return {str(record["NodeID"]): record["NodeManagerAddress"] for record in ray.nodes() if record["Alive"]}


def node_trouble(node_id: str) -> Optional[Tuple[str, str]]:
    """Return why a node takes no new actor, as code and text, or None if it does."""
    return trouble_of(node_id, alive_nodes(), draining_nodes())


def trouble_of(node_id: str, alive: Collection[str], draining: Collection[str]) -> Optional[Tuple[str, str]]:
    """Return the same for nodes that have been read already."""
    if node_id not in alive:
        return "NODE_GONE", "the node is dead or gone"
    return ("NODE_DRAINING", "the node is draining") if node_id in draining else None


def draining_nodes() -> Set[str]:
    """Return the ids of the nodes that Ray is draining; none if this Ray version cannot tell."""
    try:
        return set(state.state.get_draining_nodes())
    except Exception:
        return set()


def free_by_node() -> Mapping[str, Amounts]:
    """Return Ray's free resources, by node id."""
    free: Mapping[str, Amounts] = state.available_resources_per_node()
    return free


def busy_nodes() -> Set[str]:
    """Return the ids of the living nodes in use: some of their resources are granted, or an actor runs there."""
    free = free_by_node()
    granted = {record["NodeID"] for record in ray.nodes() if record["Alive"] and any(
        free.get(record["NodeID"], {}).get(resource, 0.0) + SLACK < amount
        for resource, amount in record["Resources"].items())}
    return granted | {actor.address.node_id.hex() for actor in live_actors()}


def claim_of(member: Member) -> Dict[str, float]:
    """Return the member's claim as Ray resources, without zeros."""
    claim = {"GPU": _in_ray(member.gpus), "CPU": _in_ray(member.cpus), "memory": float(member.memory)}
    return {name: amount for name, amount in claim.items() if amount > 0}


def _in_ray(amount: int) -> float:
    """Return 1/10000s as a float that Ray converts back exactly: Ray truncates, and 0.3112 would become 0.3111."""
    exact = amount / SHARE
    return exact if int(exact * SHARE) == amount else math.nextafter(exact, math.inf)


def format_claim(member: Member) -> str:
    """Return the claim as text: `1 GPU, 2 CPU`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in claim_of(member).items()) or "no resources"


def presence_of(node_id: str) -> Dict[str, float]:
    """Return a tiny claim on the marker resource that every node has: a bundle must not be empty."""
    for record in ray.nodes():
        if record["NodeID"] == node_id:
            names = [name for name in record["Resources"] if name.startswith("node:") and "__" not in name]
            return dict.fromkeys(sorted(names)[:1], PRESENCE)
    return {}


def bundle_for(member: Member) -> Dict[str, float]:
    """Return the placement-group bundle of a member."""
    return claim_of(member) or presence_of(member.node_id)


def member_options(member: Member) -> Dict[str, float]:
    """Return the actor options for exactly the member's claim, overriding Ray's defaults."""
    claim = claim_of(member)
    memory = {"memory": member.memory} if member.memory > 0 else {}
    return {"num_cpus": claim.get("CPU", 0), "num_gpus": claim.get("GPU", 0), **memory}


def claims_by_node(members: Collection[Member]) -> Dict[str, Dict[str, float]]:
    """Return the sum of the claims of `members` on each node."""
    claims: Dict[str, Dict[str, float]] = {}
    for member in members:
        claim = claims.setdefault(member.node_id, {})
        for resource, amount in claim_of(member).items():
            claim[resource] = claim.get(resource, 0.0) + amount
    return claims


def shortfalls(members: Collection[Member], free: Optional[Mapping[str, Amounts]] = None) -> List[str]:
    """Compare the free resources of each node, None = as Ray has them now, with the claims of `members`.

    Returns a text for each shortfall.
    """
    names = {member.node_id: member.node for member in members}
    free = free_by_node() if free is None else free
    return [
        f"{names[node_id]} has {free.get(node_id, {}).get(resource, 0.0):g} {resource} free, {amount:g} needed"
        for node_id, claim in sorted(claims_by_node(members).items())
        for resource, amount in sorted(claim.items())
        if free.get(node_id, {}).get(resource, 0.0) + SLACK < amount
    ]


def taken_names() -> Set[str]:
    """Return the names of all actors of this namespace that are not dead."""
    return set(ray.util.list_named_actors())


def live_ids(model: str, names: Set[str], not_counted: Set[int]) -> List[int]:
    """Return the ids of a model's replicas among `names`, without those that do not count."""
    prefix = f"ModelActor:{model}:"
    tails = [name[len(prefix):] for name in names if name.startswith(prefix)]
    return sorted({int(tail) for tail in tails if REPLICA_ID.fullmatch(tail)} - not_counted)


def actor_record(actor_id: str) -> ActorRecord:
    """Return Ray's record of one actor; GONE if Ray has none."""
    packed = accessor().get_actor_info(ray.ActorID(bytes.fromhex(actor_id)))
    if packed is None:
        return GONE
    data = gcs_pb2.ActorTableData.FromString(packed)
    name = gcs_pb2.ActorTableData.ActorState.Name(data.state)
    died = data.death_cause.actor_died_error_context
    left = max(0, data.max_restarts - data.num_restarts) if data.max_restarts >= 0 else None
    return ActorRecord(name, bool(data.address.ip_address), data.repr_name, _death(data.death_cause),
                       data.num_restarts, left, died.reason == died.RAY_KILL,
                       data.address.worker_id.hex(), data.pid, data.address.node_id.hex())


def worker_is_alive(worker_id: str) -> bool:
    """Return whether a worker process still exists, by its raylet's word; until it ends, Ray keeps its resources."""
    packed = accessor().get_worker_info(ray.WorkerID(bytes.fromhex(worker_id))) if worker_id else None
    return packed is not None and bool(gcs_pb2.WorkerTableData.FromString(packed).is_alive)


def _death(cause: Any) -> str:
    kind = cause.WhichOneof("context")
    context = getattr(cause, kind) if kind else None
    text = getattr(context, "formatted_exception_string", "") or getattr(context, "error_message", "")
    return str(text)


def live_actors(in_state: str = "ALIVE") -> Iterator[Any]:
    """Yield Ray's own records of all actors in this state."""
    yield from map(gcs_pb2.ActorTableData.FromString, accessor().get_actor_table(None, in_state))


def actor_pids(node_id: str) -> Set[int]:
    """Return the pids of the worker processes of all actors on a node that are not DEAD."""
    return {actor.pid for state in ("ALIVE", "PENDING_CREATION", "RESTARTING") for actor in live_actors(state)
            if actor.address.node_id.hex() == node_id}


def started_since(node_id: str, since_ms: int, exclude: Collection[str]) -> Dict[str, float]:
    """Return the resources of actors that started on a node after `since_ms`; `exclude` = actor ids to ignore."""
    held: Dict[str, float] = {}
    for data in live_actors():
        if data.address.node_id.hex() != node_id or data.start_time < since_ms or data.actor_id.hex() in exclude:
            continue
        for resource, amount in data.required_resources.items():
            held[resource] = held.get(resource, 0.0) + amount
    return held


def group_is_granted(name: str) -> bool:
    """Return whether the named placement group has its resources on every node."""
    try:
        group = ray.util.get_placement_group(name)
    except ValueError:
        return False
    return bool(ray.util.placement_group_table(group)["state"] == "CREATED")


def job_is_alive(job_id: str) -> bool:
    """Return whether the driver of a Ray job is alive; `job_id` is hexadecimal."""
    return any(job["JobID"] == job_id and not job["IsDead"] for job in state.jobs())
