"""The inventory: nodes, cards and replicas as observed at one moment. Bytes are integers, GPU amounts are 1/10000."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import timedelta
from math import isfinite
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from fleetctl.documents.base import Moment, Stored, Versioned, as_datetime
from fleetctl.documents.selector import NODE_ID_LABEL
from fleetctl.documents.served_weights import Artifact, ServedWeights, ViewId, is_absent, is_zero

NodeState = Literal["ALIVE", "DRAINING", "DEAD"]
Level = Literal["HOT", "WARM", "COLD"]
ReplicaState = Literal["DEPENDENCIES_UNREADY", "PENDING_CREATION", "ALIVE", "RESTARTING", "DEAD"]
LIVE_STATES: frozenset[str] = frozenset({"DEPENDENCIES_UNREADY", "PENDING_CREATION", "ALIVE", "RESTARTING"})
STARTING_STATES: frozenset[str] = LIVE_STATES - {"ALIVE"}
MAX_SLOTS = 100_000
LAST_OUTPUT = "; last output: "
"""What is before the engine's output in the message of a failure; see agent/engine_log.py."""
UNKNOWN_SPEC = "unknown"
"""In place of the spec hash of a replica that may have loaded other weights; see agent/reload.py."""
RELOAD_ENDED = "RELOAD_ENDED"
"""The code of a failure by which an engine ended: it has used up a restart of its replica; see agent/reload_call.py."""
RECENT = timedelta(minutes=10)


class ClusterIdentity(Stored):
    """Which cluster this is; a new session is a new cluster."""

    address: str | None = None
    ray_version: str | None = None
    session_id: str | None = None


def _whole(value: object) -> object:
    return round(value) if isinstance(value, float) and isfinite(value) else value


class Amounts(Stored):
    """Ray's resources in Ray's units: GPU and CPU as numbers, memory in bytes. Other resources are left out."""

    gpu: Annotated[float, Field(alias="GPU", ge=0)] = 0
    cpu: Annotated[float, Field(alias="CPU", ge=0)] = 0
    memory: Annotated[int, Field(ge=0), BeforeValidator(_whole)] = 0


class NodeResources(Stored):
    """Total, and what Ray has granted; `used` absent = what the listed replicas claim."""

    total: Amounts = Field(default_factory=Amounts)
    used: Amounts | None = None
    listed: Amounts | None = Field(
        None, description="the part of `used` that actors explain; tasks and placement groups of others hold the rest")


class CardProcess(Stored):
    """A process that has memory of a card, as the driver reports it; inside a container it may hide some."""

    pid: int
    memory: int | None = Field(None, description="bytes; null = unknown")
    command: str | None = Field(None, description="what it runs; null = Ray did not start it")


class Gpu(Stored):
    """One card, or a MIG device. `share` = fraction of it granted by Ray, 0 to 1; None = not known for this card."""

    index: int
    uuid: str | None = None
    model: str | None = None
    memory_total: int | None = Field(None, description="bytes; null = unknown")
    memory_used: int | None = Field(None, description="bytes in use by anyone; null = unknown")
    memory_foreign: int | None = Field(
        None, description="bytes in use that nothing Ray has granted explains; 0 where that is no more than any card "
                          "uses by itself, null = unknown")
    processes: list[CardProcess] = Field(default_factory=list, description="what has memory of it, ours too")
    unified: bool = Field(False, description="it has no memory of its own: the amounts are the host's")
    share: Annotated[float, Field(ge=0, le=1)] | None = None


class Cordon(Stored):
    """Why nothing new goes on a node, by a note of the cluster; one that had ended when it was read is left out."""

    reason: str = ""
    until: Moment | None = Field(None, description="null = until it is taken back")
    by: str = Field("", description="the name that its author gave")


class Slots(Stored):
    """How many replicas of one model a node may hold, by a note of the cluster."""

    value: Annotated[int, Field(ge=0, le=MAX_SLOTS)]
    source: str


class ColdWeights(Stored):
    """Files on a node's disk that fleetctl has verified there."""

    artifact: Artifact
    view: ViewId | None = Field(None, description="the part that is there; null = all files")


class FailedFetch(Stored):
    """Weights that an apply could not bring onto a node's disk."""

    artifact: Artifact
    at: Moment


class Node(Stored):
    """One Ray node."""

    id: str
    name: str
    ip: str | None = None
    state: NodeState = "ALIVE"
    labels: dict[str, str] = Field(default_factory=dict)
    resources: NodeResources = Field(default_factory=NodeResources)
    gpus: list[Gpu] = Field(default_factory=list)
    cordon: Cordon | None = None
    slots: Slots | None = None
    started_at: Moment | None = Field(None, description="when it joined the cluster")
    uncordoned_at: Moment | None = Field(None, description="when a person last said that it is good to use")
    cold: list[ColdWeights] | None = Field(
        None, exclude_if=is_absent, description="weights on its disk; null = not asked for, or it did not answer")
    unfetched: list[FailedFetch] = Field(
        default_factory=list, exclude_if=is_zero, description="fetches for its disk that failed, the oldest first")

    @property
    def all_labels(self) -> dict[str, str]:
        """Return its labels, and the one by which Ray selects it alone."""
        return {NODE_ID_LABEL: self.id, **self.labels}


class ReplicaMember(Stored):
    """One member of a live replica. `gpus` in 1/10000 of a card."""

    group: str | None = None
    copy_index: int = Field(0, alias="copy")
    role: str = "Standalone"
    rank: int = 0
    slot: int | None = Field(None, description="the replica's slot on its node, where it is known")
    node_id: str | None = None
    gpus: int = 0
    vram: int = Field(0, description="bytes claimed on each card")
    cpus: int = Field(0, description="1/10000 CPU")
    memory: int = 0
    gpu_indices: list[int] = Field(default_factory=list)
    gpu_uuids: list[str] = Field(default_factory=list)
    address: str | None = None
    port: int | None = None
    weights: ServedWeights | None = Field(None, exclude_if=is_absent)

    @property
    def host_port(self) -> str:
        """Return where it serves, as URLs have it; empty where that is not known."""
        return host_port(self.address, self.port) if self.address and self.port else ""


class Replica(Stored):
    """One actor that serves, or means to serve, a model, or is WARM: ours, another fleet's, or a foreign one."""

    model: str
    replica_id: int | None = Field(None, description="null for a foreign scheme")
    foreign_id: str | None = Field(None, description="the actor's full name where it is not ours")
    level: Level = Field("HOT", description="WARM = it holds its weights in memory, and no card: it serves nothing")
    state: ReplicaState = "ALIVE"
    fleet: str | None = Field(None, description="the fleet whose mark it carries; null = unmanaged")
    spec_hash: str | None = None
    engine_hash: str | None = Field(None, exclude_if=is_absent, description="of its spec without index and view of "
                                                                            "its weights; null = it has none")
    actor_id: str | None = None
    restarts: int = Field(0, description="how many times Ray has restarted it since it was created")
    restart_max: int | None = Field(None, description="how many times Ray restarts it at most, where it says so")
    since: Moment | None = Field(
        None, description="when it became ready; while it is not, when it began to start or last ended; null = unknown")
    members: list[ReplicaMember] = Field(default_factory=list)
    constructed: bool = Field(
        True, description="false = Ray calls its actor ALIVE, but its constructor never returned: it does not serve")
    error: str | None = Field(None, description="last output or exit reason, where known")
    ready_at: Moment | None = Field(None, description="when it became ready, of one that is")
    tool_version: str | None = Field(
        None, description="the release of fleetctl that started it; null = the cluster no longer lists that run")
    draining: bool = Field(False, description="an eviction that runs names it: it serves, and is about to end")


class Failure(Stored):
    """One replica that failed permanently: its start failed, or it went down with no restart left."""

    model: str
    replica_id: int
    actor_id: str | None = None
    fleet: str | None = None
    spec_hash: str | None = Field(None, description="of the spec it was started with; null = unknown")
    node_ids: list[str] = Field(
        default_factory=list, description="of the member that failed where that is known, else of all its members")
    gpu_uuids: list[str] = Field(default_factory=list, description="the cards it held there, where known")
    code: str = Field(description="such as ENGINE_EXITED; REPLICA_DIED = by no act of fleetctl's")
    message: str = ""
    reload: bool = Field(False, exclude_if=is_zero, description="its update in place failed: it runs")
    at: Moment | None = Field(None, description="null = unknown")
    restarts: int = 0


class Success(Stored):
    """One replica that became ready, and is gone by no failure of its own."""

    model: str
    spec_hash: str | None = None
    node_ids: list[str] = Field(default_factory=list)
    gpu_uuids: list[str] = Field(default_factory=list, description="the cards it held, where known")
    at: Moment = Field(description="when it became ready")


class Inventory(Versioned):
    """What runs where. `complete: false` = something could not be read, and nothing may be planned on it."""

    kind: Literal["Inventory"] = "Inventory"
    observed_at: Moment = Field(description="RFC 3339 with a zone")
    source: str = Field(description="where it was read: a dashboard URL or a file")
    complete: bool = True
    warnings: list[str] = Field(default_factory=list)
    unread: list[str] = Field(
        default_factory=list,
        description="those of the warnings that make it incomplete; an older release does not list them")
    cluster: ClusterIdentity = Field(default_factory=ClusterIdentity)
    nodes: list[Node] = Field(default_factory=list)
    replicas: list[Replica] = Field(default_factory=list)
    failures: list[Failure] = Field(
        default_factory=list, description="the replicas that failed, as far as Ray remembers its dead actors")
    successes: list[Success] = Field(
        default_factory=list, exclude_if=is_zero,
        description="the replicas that are gone but were ready, after a failure of their spec or on one of their nodes")


def host_port(address: str, port: int) -> str:
    """Return both as URLs have them: an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def dead_node_ids(inventory: Inventory) -> frozenset[str]:
    """Return the ids of the nodes that are DEAD for Ray, the `dead` of `is_lost`."""
    return frozenset(node.id for node in inventory.nodes if node.state == "DEAD")


def is_lost(replica: Replica, dead: Set[str]) -> bool:
    """Return whether the replica is lost: its actor is live for Ray, but was never constructed, or has a `dead` node.

    Only a node that is listed as DEAD is dead. Ray keeps the 1,000 latest dead nodes, so a node that is not listed may
    be dead; but it may also be alive and missing from a list. To count a dead replica costs a wait; not to count a live
    one starts it twice.
    """
    if replica.state not in LIVE_STATES:
        return False
    return not replica.constructed or any(member.node_id in dead for member in replica.members)


def is_live(replica: Replica, dead: Set[str]) -> bool:
    """Return whether a replica counts toward a target: live, HOT, and not lost."""
    return replica.level == "HOT" and replica.state in LIVE_STATES and not is_lost(replica, dead)


def was_restarted_recently(replica: Replica, observed_at: str) -> bool:
    """Return whether a replica that is ready was not, a short while before: it may be about to end again."""
    return bool(replica.restarts and replica.state == "ALIVE" and replica.since
                and as_datetime(observed_at) - as_datetime(replica.since) < RECENT)


def serves(replica: Replica) -> bool:
    """Return whether a live replica takes requests: it is ready, and no eviction waits for its requests to end."""
    return replica.state == "ALIVE" and not replica.draining


def card_indices(member: ReplicaMember, cards: Sequence[Gpu]) -> list[int]:
    """Return which of its node's `cards` a member holds, each once, as the node counts them; empty where unknown.

    By UUID where the node knows all of the member's, as a container may count its cards differently; else by index.
    """
    return indices_among(member, {card.uuid: card.index for card in cards if card.uuid}, {card.index for card in cards})


def indices_among(member: ReplicaMember, by_uuid: Mapping[str, int], known: Set[int]) -> list[int]:
    """Return what `card_indices` does, for cards given as indices by UUID and all indices: for many members at once."""
    if member.gpu_uuids:
        found = [by_uuid.get(uuid) for uuid in member.gpu_uuids]
        if None not in found:
            return [index for index in dict.fromkeys(found) if index is not None]
    return [index for index in dict.fromkeys(member.gpu_indices) if index in known]
