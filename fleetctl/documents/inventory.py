"""The inventory: nodes, cards and replicas as observed at one moment. Bytes are integers, GPU amounts are 1/10000."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import timedelta
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from math import isfinite
from typing import Annotated, Literal, TypeGuard

from pydantic import BeforeValidator, Field

from fleetctl.documents.base import Moment, Stored, Versioned, as_datetime
from fleetctl.documents.quantity import MAX_BYTES, SHARE, some
from fleetctl.documents.selector import NODE_ID_LABEL
from fleetctl.documents.weights import Artifact, GotCaches, ServedWeights, ViewId, is_absent, is_zero

NodeState = Literal["ALIVE", "DRAINING", "DEAD"]
Level = Literal["HOT", "WARM", "COLD"]
ReplicaState = Literal["DEPENDENCIES_UNREADY", "PENDING_CREATION", "ALIVE", "RESTARTING", "DEAD"]
LIVE_STATES: frozenset[str] = frozenset({"DEPENDENCIES_UNREADY", "PENDING_CREATION", "ALIVE", "RESTARTING"})
STARTING_STATES: frozenset[str] = LIVE_STATES - {"ALIVE"}
MAX_SLOTS = 100_000
MAX_NODE_GPUS = 1_024
MAX_NODE_CPUS = 1_000_000
MAX_CARD_INDEX = 65_535
"""The most of one node; of bytes, of one card, too, it is MAX_BYTES."""
MAX_START_S = 10 * 86_400
CAUSE, LAST_OUTPUT = "; cause: ", "; last output: "
"""Precede the error that ended an engine, and its output, in the message of a failure; see agent/engine.py."""
UNKNOWN_SPEC = "unknown"
"""Replaces the spec hash of a replica that may have loaded other weights; see agent/reload.py."""
RELOAD_ENDED = "RELOAD_ENDED"
"""The code of a failed reload that ended the engine, which costs the replica a restart; see agent/reload.py."""
MAX_PROCESSES = 3
"""The most processes of a card that a message names."""
RECENT = timedelta(minutes=10)
_LONGEST_ADDRESS = 45
_BROADCAST = ip_address("255.255.255.255")


class ClusterIdentity(Stored):
    """Which cluster this is; a new session is a new cluster."""

    address: str | None = None
    ray_version: str | None = None
    session_id: str | None = None


def _whole(value: object) -> object:
    return round(value) if isinstance(value, float) and isfinite(value) else value


class Amounts(Stored):
    """Ray's resources in Ray's units: GPU and CPU as numbers, memory in bytes. Other resources are left out."""

    gpu: Annotated[float, Field(alias="GPU", ge=0, le=MAX_NODE_GPUS)] = 0
    cpu: Annotated[float, Field(alias="CPU", ge=0, le=MAX_NODE_CPUS)] = 0
    memory: Annotated[int, Field(ge=0, le=MAX_BYTES), BeforeValidator(_whole)] = 0


class NodeResources(Stored):
    """The node's total, and what Ray has granted; `used` absent = the claims of the listed replicas."""

    total: Amounts = Field(default_factory=Amounts)
    used: Amounts | None = None
    listed: Amounts | None = Field(
        None, description="the part of `used` held by actors; tasks and placement groups of others hold the rest")


CardAmount = Annotated[int, Field(ge=0, le=MAX_BYTES)]
CardIndex = Annotated[int, Field(ge=0, le=MAX_CARD_INDEX)]


class CardProcess(Stored):
    """A process that uses memory of a card, as the driver reports it; in a container the driver may hide some."""

    pid: int
    memory: CardAmount | None = Field(None, description="bytes; null = unknown")
    command: str | None = Field(None, description="its command; null = Ray did not start it")


class Gpu(Stored):
    """One card, or a MIG device. `share` = the fraction granted by Ray, 0 to 1; None = unknown for this card."""

    index: CardIndex
    uuid: str | None = None
    model: str | None = None
    memory_total: CardAmount | None = Field(None, description="bytes; null = unknown")
    memory_used: CardAmount | None = Field(None, description="bytes in use by anyone; null = unknown")
    memory_foreign: CardAmount | None = Field(
        None, description="bytes in use that no grant of Ray accounts for; 0 if that is no more than an idle card "
                          "uses; null = unknown")
    processes: list[CardProcess] = Field(
        default_factory=list, description="the processes that use its memory, ours included")
    unified: bool = Field(False, description="it has no memory of its own: the amounts are the host's")
    share: Annotated[float, Field(ge=0, le=1)] | None = None


class Cordon(Stored):
    """A note that keeps new replicas off a node. A cordon that had ended when the notes were read is left out."""

    reason: str = ""
    until: Moment | None = Field(None, description="null = until it is uncordoned")
    by: str = Field("", description="the name its author gave")


class Pause(Stored):
    """A note that no replicas of a model, or of a whole fleet, may be created. One that has ended is left out."""

    fleet: str
    model: str | None = Field(None, description="null = all models of the fleet")
    since: Moment
    until: Moment | None = Field(None, description="null = until it is resumed")
    by: str = Field("", description="the name its author gave")
    reason: str = ""


class Slots(Stored):
    """A note that says how many replicas of one model a node may hold."""

    value: Annotated[int, Field(ge=0, le=MAX_SLOTS)]
    source: str


class ColdWeights(Stored):
    """Weights on a node's disk that fleetctl has verified there."""

    artifact: Artifact
    view: ViewId | None = Field(None, description="the part that is on the disk; null = all files")


class FailedFetch(Stored):
    """Weights that an apply failed to fetch to a node's disk."""

    artifact: Artifact
    at: Moment


class WrongWeights(Stored):
    """A file on a node's disk that was not what its index says, and what came of it."""

    artifact: Artifact
    view: ViewId | None = Field(None, description="the part to which the file belongs; null = all files")
    file: str
    piece: int = Field(ge=0, description="the first wrong piece of 64 MiB, counted from 0")
    reason: str = ""
    at: Moment = Field(description="when it was found")
    now: Literal["wrong", "fetched", "unfetched"] = Field(
        "wrong", description="fetched = it was fetched again since; unfetched = that failed, because of `trouble`")
    trouble: str = ""


class Node(Stored):
    """One Ray node."""

    id: str
    name: str
    ip: str | None = None
    state: NodeState = "ALIVE"
    labels: dict[str, str] = Field(default_factory=dict)
    resources: NodeResources = Field(default_factory=NodeResources)
    gpus: list[Gpu] = Field(default_factory=list)
    unreported_cards: int = Field(
        0, ge=0, le=MAX_NODE_GPUS, exclude_if=is_zero,
        description="how many of the GPUs that it offers to Ray it does not report as cards; 0 if they are simulated")
    cordon: Cordon | None = None
    slots: Slots | None = None
    started_at: Moment | None = Field(None, description="when it joined the cluster")
    uncordoned_at: Moment | None = Field(None, description="when it was last uncordoned, and so declared good to use")
    cold: list[ColdWeights] | None = Field(
        None, exclude_if=is_absent, description="weights on its disk; null = not queried, or it did not answer")
    unfetched: list[FailedFetch] = Field(
        default_factory=list, exclude_if=is_zero, description="failed fetches to its disk, oldest first")
    wrong_weights: list[WrongWeights] = Field(
        default_factory=list, exclude_if=is_zero, description="files on its disk that were found wrong, as it notes")

    @property
    def all_labels(self) -> dict[str, str]:
        """Its labels, and the one by which Ray selects a single node."""
        return {NODE_ID_LABEL: self.id, **self.labels}


def unreporting(nodes: Iterable[Node]) -> list[tuple[list[Node], str]]:
    """Return the nodes that do not report all their cards, by how many they report, each with a warning about them."""
    unknown = ("one may be lost, and what else uses the others is unknown; other nodes are used first, and each member "
               "checks its cards before its engine starts")
    by_count: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda node: (node.name, node.id)):
        if node.unreported_cards and node.state != "DEAD":
            total = int(node.resources.total.gpu)
            by_count.setdefault(f"{total - node.unreported_cards} of {total} cards", []).append(node)
    names = {count: some([node.name for node in found], 5) for count, found in by_count.items()}
    return [(found, f"{names[count]} {'each report' if found[1:] else 'reports'} {count}: {unknown}")
            for count, found in sorted(by_count.items())]


class ReplicaMember(Stored):
    """One member of a live replica. `gpus` in 1/10000 of a card."""

    group: str | None = None
    copy_index: int = Field(0, alias="copy", ge=0, le=MAX_SLOTS)
    role: str = "Standalone"
    rank: int = Field(0, ge=0, le=MAX_SLOTS)
    slot: int | None = Field(None, ge=0, le=MAX_SLOTS, description="the replica's slot on its node, if known")
    node_id: str | None = None
    gpus: int = Field(0, ge=0, le=MAX_NODE_GPUS * SHARE)
    vram: int = Field(0, ge=0, le=MAX_BYTES, description="bytes claimed on each card")
    cpus: int = Field(0, ge=0, le=MAX_NODE_CPUS * SHARE, description="1/10000 CPU")
    memory: int = Field(0, ge=0, le=MAX_BYTES)
    gpu_indices: list[CardIndex] = Field(default_factory=list)
    gpu_uuids: list[str] = Field(default_factory=list)
    address: str | None = None
    port: int | None = None
    weights: ServedWeights | None = Field(None, exclude_if=is_absent)
    caches: GotCaches | None = Field(None, exclude_if=is_absent)

    @property
    def host_port(self) -> str:
        """The address and port on which it serves, as in a URL; empty if unknown."""
        return host_port(self.address, self.port) if self.address and self.port else ""


class Replica(Stored):
    """One actor that serves or starts to serve a model, or is WARM: ours, another fleet's, or of a foreign scheme."""

    model: str
    replica_id: int | None = Field(None, description="null for a foreign scheme")
    foreign_id: str | None = Field(None, description="the actor's full name, if it is of a foreign scheme")
    level: Level = Field("HOT", description="WARM = it holds its weights in memory, but no card, and does not serve")
    state: ReplicaState = "ALIVE"
    fleet: str | None = Field(None, description="the fleet whose mark it carries; null = unmanaged")
    spec_hash: str | None = None
    variant: str | None = Field(
        None, exclude_if=is_absent, description="the variant of its model that it was started as")
    engine_hash: str | None = Field(None, exclude_if=is_absent, description="of its spec without index and view of "
                                                                            "its weights; null = it has none")
    actor_id: str | None = None
    restarts: int = Field(0, description="how many times Ray has restarted it since it was created")
    restart_max: int | None = Field(
        None, description="how many times in a row it may be restarted; null = unknown")
    restarts_used: int | None = Field(
        None, exclude_if=is_absent,
        description="how many of those are used, zero after ten minutes of readiness; null = as many as `restarts`, as "
                    "in releases that know no such time")
    since: Moment | None = Field(
        None, description="when it became ready; if it is not, when it began to start or last ended; null = unknown")
    members: list[ReplicaMember] = Field(default_factory=list)
    constructed: bool = Field(
        True, description="false = Ray calls its actor ALIVE, but its constructor never returned: it does not serve")
    error: str | None = Field(None, description="last output or exit reason, if known")
    ready_at: Moment | None = Field(None, description="when it became ready; null = it is not")
    tool_version: str | None = Field(
        None, description="the release of fleetctl that started it; null = the cluster no longer lists that run")
    draining: bool = Field(False, description="a running eviction names it: it still serves, but is about to end")
    not_ready_since: Moment | None = Field(
        None, exclude_if=is_absent,
        description="since when it is not ready any more, so it counts, but does not serve: its probe fails, or it is "
                    "being ended")
    not_ready_reason: str = Field("", exclude_if=is_zero, description="how the probe failed, or that it is being ended")
    gone_within_s: float | None = Field(
        None, exclude_if=is_absent, description="how long that eviction may take, in seconds; absent = unknown")
    refused: list[str] = Field(
        default_factory=list, exclude_if=is_zero,
        description="what its actor says of itself and does not count, with the reason, such as an address that is "
                    "not its node's")

    @property
    def in_a_row(self) -> int:
        """Its restarts that count toward `restart_max`."""
        return self.restarts if self.restarts_used is None else self.restarts_used

    @property
    def actor_name(self) -> str:
        """The full name of its actor."""
        kind = "WarmReplica" if self.level == "WARM" else "ModelActor"
        return self.foreign_id or f"{kind}:{self.model}:{self.replica_id}"


CARD_FAILURES = frozenset({"CARD_LOST", "CARD_FAULTY"})
"""Codes of a card that has failed itself, whatever was to run on it."""


class Failure(Stored):
    """One replica that failed permanently: its start failed, or it went down with no restart left."""

    model: str
    replica_id: int
    actor_id: str | None = None
    fleet: str | None = None
    spec_hash: str | None = Field(None, description="of the spec it was started with; null = unknown")
    node_ids: list[str] = Field(
        default_factory=list, description="the node of the member that failed if known, else of all its members")
    gpu_uuids: list[str] = Field(default_factory=list, description="the cards it held there, if known")
    gpu_indices: list[int] = Field(
        default_factory=list, exclude_if=is_zero, description="for CARD_LOST and CARD_FAULTY: the number of the card")
    code: str = Field(description="such as ENGINE_EXITED; REPLICA_DIED = not ended by fleetctl")
    message: str = ""
    reload: bool = Field(False, exclude_if=is_zero, description="its in-place update failed: it still runs")
    at: Moment | None = Field(None, description="null = unknown")
    restarts: int = 0


class Success(Stored):
    """One replica that became ready, and is gone for another reason than a failure of its own."""

    model: str
    spec_hash: str | None = None
    node_ids: list[str] = Field(default_factory=list)
    gpu_uuids: list[str] = Field(default_factory=list, description="the cards it held, if known")
    at: Moment = Field(description="when it became ready")


WEIGHTS_FROM = ("origin", "peer", "disk")
"""Where the weights of a start can come from, the slowest first."""


class Start(Stored):
    """How long a new replica took, from its creation to its readiness; restarts and promotions are none."""

    model: str
    spec_hash: str | None = None
    seconds: Annotated[float, Field(ge=0.1, le=MAX_START_S)]
    at: Moment = Field(description="when it became ready")
    node_ids: list[str] = Field(default_factory=list)
    artifact: Artifact | None = Field(None, description="its weights; null = its file names none")
    weights: str | None = Field(None, description="where they came from: origin, peer or disk; of several members the "
                                                  "first of these; null = unknown")
    bytes: int = Field(0, ge=0, le=MAX_BYTES, description="their size on the node that has most of them; "
                                                           "0 = unknown")


class Inventory(Versioned):
    """What runs where. `complete: false` = something could not be read, and nothing may be planned on it."""

    kind: Literal["Inventory"] = "Inventory"
    observed_at: Moment = Field(description="RFC 3339 with a zone")
    source: str = Field(description="where it was read from: a dashboard URL or a file")
    complete: bool = True
    warnings: list[str] = Field(default_factory=list)
    unread: list[str] = Field(
        default_factory=list,
        description="the warnings that make it incomplete; older releases do not list them")
    cluster: ClusterIdentity = Field(default_factory=ClusterIdentity)
    nodes: list[Node] = Field(default_factory=list)
    replicas: list[Replica] = Field(default_factory=list)
    failures: list[Failure] = Field(
        default_factory=list, description="the replicas that failed, as far as Ray remembers its dead actors")
    successes: list[Success] = Field(
        default_factory=list, exclude_if=is_zero,
        description="replicas that are gone but became ready after a failure of their spec or on one of their nodes")
    starts: list[Start] = Field(
        default_factory=list, exclude_if=is_zero,
        description="the starts that the cluster remembers, oldest first; of each spec and source of weights the "
                    "newest 20")
    pauses: list[Pause] = Field(
        default_factory=list, exclude_if=is_zero, description="the pauses in force, of any fleet in this Ray namespace")


def address_of(value: object) -> str | None:
    """Return an IP address in its shortest form, else None; only text without a zone that can name one machine.

    An IPv4 address in IPv6's form is the IPv4 address. A zone, as in `fe80::1%eth0`, has a meaning on one machine only.
    """
    return _address_in(value) if isinstance(value, str) and len(value) <= _LONGEST_ADDRESS else None


@lru_cache(maxsize=10_000)
def _address_in(text: str) -> str | None:
    try:
        found = ip_address(text if "%" not in text else "")
    except ValueError:
        return None
    if isinstance(found, IPv6Address):
        found = found.ipv4_mapped or found
    return None if found.is_unspecified or found.is_multicast or found == _BROADCAST else str(found)


def is_port(value: object) -> TypeGuard[int]:
    """Return whether this is a TCP port: an integer, and JSON's `true` is none."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65_535


def host_port(address: str, port: int) -> str:
    """Return both as in a URL: an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def dead_node_ids(inventory: Inventory) -> frozenset[str]:
    """Return the ids of the nodes that Ray lists as DEAD: the `dead` of `is_lost`."""
    return frozenset(node.id for node in inventory.nodes if node.state == "DEAD")


def is_lost(replica: Replica, dead: Set[str]) -> bool:
    """Return whether the replica is lost: Ray calls its actor live, but it was never constructed or has a `dead` node.

    Only a node listed as DEAD counts as dead. Ray keeps the last 1,000 dead nodes, so a node that is not listed may be
    dead, but it may also be alive and missing from a list. Counting a dead replica costs a wait; not counting a live
    one would start it twice.
    """
    if replica.state not in LIVE_STATES:
        return False
    return not replica.constructed or any(member.node_id in dead for member in replica.members)


def is_live(replica: Replica, dead: Set[str]) -> bool:
    """Return whether a replica counts toward a target: live, HOT, and not lost."""
    return replica.level == "HOT" and replica.state in LIVE_STATES and not is_lost(replica, dead)


def is_long(since: str, until: str) -> bool:
    """Return whether a replica that was ready so long has all its restarts again."""
    return as_datetime(until) - as_datetime(since) >= RECENT


def was_restarted_recently(replica: Replica, observed_at: str) -> bool:
    """Return whether a ready replica was restarted less than `RECENT` ago: it may end again soon."""
    return bool(replica.restarts and replica.state == "ALIVE" and replica.since
                and not is_long(replica.since, observed_at))


def serves(replica: Replica) -> bool:
    """Return whether a live replica takes requests: it is ready, still answers, and no eviction is draining it."""
    return replica.state == "ALIVE" and not replica.draining and replica.not_ready_since is None


def may_have_loaded(node: Node, wrong: WrongWeights, replicas: Sequence[Replica]) -> list[Replica]:
    """Return the replicas that use these weights on this node, and were ready before the wrong file was found."""
    return [replica for replica in replicas if replica.state in LIVE_STATES and replica.ready_at and as_datetime(
        replica.ready_at) <= as_datetime(wrong.at) and any(
            member.weights and (member.node_id, member.weights.artifact, member.weights.view) == (
                node.id, wrong.artifact, wrong.view) for member in replica.members)]


def open_cases(node: Node, replicas: Sequence[Replica]) -> list[WrongWeights]:
    """Return the wrong files of a node that need attention: not fetched again, or perhaps loaded by an engine."""
    return [wrong for wrong in node.wrong_weights
            if wrong.now != "fetched" or may_have_loaded(node, wrong, replicas)]


def users_text(card: Gpu) -> str:
    """Return ` by process 4242 (ray::Trainer)` for the processes of a card, the largest first; empty if unknown."""
    largest = sorted(card.processes, key=lambda one: (-(one.memory or 0), one.pid))
    named = [f"process {one.pid}{f' ({one.command})' if one.command else ''}" for one in largest]
    return f" by {some(named, MAX_PROCESSES)}" if named else ""


def card_indices(member: ReplicaMember, cards: Sequence[Gpu]) -> list[int]:
    """Return which of its node's `cards` a member holds, by the node's indices without duplicates; empty if unknown.

    By UUID if the node knows all UUIDs of the member, since a container may number its cards differently; else by
    index.
    """
    return indices_among(member, {card.uuid: card.index for card in cards if card.uuid}, {card.index for card in cards})


def indices_among(member: ReplicaMember, by_uuid: Mapping[str, int], known: Set[int]) -> list[int]:
    """Do what `card_indices` does with precomputed maps of the node's cards, for many members of one node."""
    if member.gpu_uuids:
        found = [by_uuid.get(uuid) for uuid in member.gpu_uuids]
        if None not in found:
            return [index for index in dict.fromkeys(found) if index is not None]
    return [index for index in dict.fromkeys(member.gpu_indices) if index in known]
