"""What the client and a run tell each other: the plan, the requests of all verbs, outcomes, and the events of a run.

Values as those of `messages.py`, read and written in the same way; and like there, no `from __future__ import
annotations`.

A request is in Ray's package table, is read once and removed. The client uploads it over HTTP (`PUT
/api/packages/...`), which cannot read it back. A plan contains env values; this way they never reach a disk.

Events go the other way: one JSON object per line on standard output, which is Ray's job log. First `version`, last
`runSummary`.
"""

import json
import threading
import time
import zlib
from typing import Any, List, Mapping, NamedTuple, Optional, Protocol, Sequence

import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get

from .messages import Action, Engine, GotWeights, Json, Lifecycle, PlannedWeights, ServedWeights
from .report import moment
from .wire import document_of


class ShapeMember(NamedTuple):
    """A member of a spec's worker group; a Worker with a count is several."""

    engine: Engine
    role: str = "Standalone"
    count_: Optional[int] = None


class ShapeGroup(NamedTuple):
    """A worker group of a spec."""

    name: str
    members: Sequence[ShapeMember]

    @property
    def engines(self) -> List[Engine]:
        """The engines by rank: the leader (or the one Standalone) is 0, then the Workers in file order."""
        leaders = [member.engine for member in self.members if member.role != "Worker"]
        return leaders + [member.engine for member in self.members if member.role == "Worker"
                          for _ in range(member.count_ or 1)]


class Spec(NamedTuple):
    """The shape of a model's replicas."""

    workers: Sequence[ShapeGroup]

    def engine(self, group: str, rank: int) -> Engine:
        """Return the engine of a member."""
        return next(found for found in self.workers if found.name == group).engines[rank]


class PrefetchMember(NamedTuple):
    """What a node fetches, with the variables that a member there would have."""

    weights: PlannedWeights
    variables: Mapping[str, str]
    engine: Engine = Engine()


class Blocked(NamedTuple):
    """Replicas of a model that were not placed; `after_pilot` = of them, those for whose nodes a pilot must be ready.
    """

    model: str
    replicas: int
    code: str
    message: str
    after_pilot: Optional[int] = None


class AfterPilot(NamedTuple):
    """A new replica that waits until a pilot of its spec is ready."""

    model: str
    variant: Optional[str] = None


class NodeType(NamedTuple):
    """A type of node that a fleet needs: the living ones that it `keeps`, and how many new `nodes`, at most `max`."""

    name: str
    labels: Mapping[str, str]
    gpus: int
    cpus: int
    keeps: Sequence[str] = ()
    nodes: int = 0
    max: int = 0


class OtherReplica(NamedTuple):
    """A replica that exists but does not count: lost, or not of this fleet."""

    model: str
    replica_id: Optional[int] = None


class PlanFleet(NamedTuple):
    """The fleet of a plan."""

    name: str
    namespace: str = "fleet"


class PlanOptions(NamedTuple):
    """The flags that leave models out of a plan, and the fleet whose replicas it adopts."""

    targets: Sequence[str] = ()
    excludes: Sequence[str] = ()
    selector: Optional[str] = None
    adopt_from: Optional[str] = None


class Plan(NamedTuple):
    """What an apply carries out."""

    plan_id: str
    fleet: PlanFleet
    specs: Mapping[str, Spec] = {}
    actions: Sequence[Action] = ()
    after_pilot: Sequence[AfterPilot] = ()
    blocked: Sequence[Blocked] = ()
    growth: Sequence[NodeType] = ()
    unmanaged: Sequence[OtherReplica] = ()
    lost: Sequence[OtherReplica] = ()
    options: PlanOptions = PlanOptions()

    @property
    def starts(self) -> List[Action]:
        """The actions that start a replica, in order of creation."""
        return [action for action in self.actions if action.op in ("create", "promote")]


class Holder(NamedTuple):
    """Who holds a lock: the job, its starter, and Ray's id of its driver."""

    job: str = ""
    who: str = ""
    plan_id: Optional[str] = None
    driver: Optional[str] = None
    released: Optional[bool] = None


class Awaited(NamedTuple):
    """A model whose starting replicas an apply waits for, but not for those with the ids in `but`."""

    key: str
    lifecycle: Lifecycle
    but: Sequence[int] = ()


class PlanRequest(NamedTuple):
    """A plan to carry out, its record for the log, and the name of each member's log file."""

    plan: Plan
    record: Mapping[str, Json]
    logs: Mapping[str, str]


class ReplanAnswer(NamedTuple):
    """The client's answer to a request for a new plan: the plan, or why there is none."""

    request: Optional[PlanRequest] = None
    why: str = ""


class ApplyRequest(NamedTuple):
    """The request of an apply. `lock_timeout` in seconds; `parallelism` = how many replicas wait for Ray at a time."""

    plan: Plan
    record: Mapping[str, Json]
    logs: Mapping[str, str]
    job: str
    holder: Holder
    tool_version: str = ""
    parallelism: int = 1000
    lock_timeout: float = 0.0
    single_use: bool = False
    wait: bool = True
    may_replan: bool = False
    await_: Sequence[Awaited] = ()


class Target(NamedTuple):
    """A replica that an explicit verb names: exactly this actor. Times in seconds.

    `variant` = the one of its model's that it is, if that has any.
    """

    model: str
    replica_id: int
    actor_id: str = ""
    nodes: Sequence[str] = ()
    startup_timeout: float = 0.0
    level: str = "HOT"
    spec_hash: Optional[str] = None
    weights: Sequence[Optional[ServedWeights]] = ()
    variant: Optional[str] = None

    @property
    def key(self) -> str:
        """Its key, MODEL/ID."""
        return f"{self.model}/{self.replica_id}"


class WarmNode(NamedTuple):
    """A node's name, and how many bytes of weights may be WARM there; None = any."""

    name: str = ""
    bytes: Optional[int] = None


class KeptVariant(NamedTuple):
    """How many replicas of a variant must stay ready, of those with these actor ids."""

    model: str
    variant: str
    least: int
    actors: Sequence[str]


class ExplicitRequest(NamedTuple):
    """The request of evict or restart. `keep` = how many replicas of a model must stay ready; times in seconds."""

    fleet: str
    replicas: Sequence[Target]
    job: str
    holder: Holder
    tool_version: str = ""
    drain: float = 0.0
    lock_timeout: float = 0.0
    keep: Mapping[str, int] = {}
    level: str = ""
    warm: Mapping[str, WarmNode] = {}
    keep_of_each: Sequence[KeptVariant] = ()


class PrefetchRequest(NamedTuple):
    """The request of prefetch: members by node id, the time of each node in seconds, and how many fetch at once."""

    nodes: Mapping[str, Sequence[PrefetchMember]]
    timeout: float
    at_once: int
    job: str
    tool_version: str = ""


class Need(NamedTuple):
    """What an engine needs on its node; `kind` is command, variable, workdir, port or image.

    `path` = the engine's PATH for a command, the container runtime for an image.
    """

    kind: str
    value: str
    path: Optional[str] = None


class ExamineRequest(NamedTuple):
    """The request of examine: needs by node id, and the time limit in seconds."""

    nodes: Mapping[str, Sequence[Need]]
    timeout: float
    job: str
    tool_version: str = ""


class CachesRequest(NamedTuple):
    """The request of caches or prune: artifacts to leave out, or to remove, by node id."""

    nodes: Mapping[str, Sequence[str]]
    timeout: float
    job: str
    tool_version: str = ""


class LeftGroup(NamedTuple):
    """A placement group of ours without a replica."""

    id: str
    name: str


class LeftLock(NamedTuple):
    """A lock whose job ended without releasing it."""

    fleet: str
    number: int
    job: str = ""


class Orphan(NamedTuple):
    """A process of an engine without a replica; `began` = its start, which no later process of the pid shares.

    `container` = the id of its container, or "unknown"; empty if it is in none. Its replica may then be unknown: ''.
    """

    pid: int
    began: int
    command: str
    model: str
    replica_id: str
    container: str = ""


class RepairRequest(NamedTuple):
    """The request of repair: what to remove, orphans by node id, and the time limit in seconds."""

    groups: Sequence[LeftGroup]
    locks: Sequence[LeftLock]
    orphans: Mapping[str, Sequence[Orphan]]
    timeout: float
    job: str
    tool_version: str = ""


class ReleaseRequest(NamedTuple):
    """The request to withdraw a fleet's part of what the autoscaler was asked for."""

    fleet: str
    dry_run: bool
    job: str
    tool_version: str = ""


class StandbyRequest(NamedTuple):
    """The request to wait for a plan of a fleet. `agent` = the hash of this agent's package."""

    fleet: str
    namespace: str
    agent: str
    job: str
    tool_version: str = ""


class Handover(NamedTuple):
    """A plan for an agent that waits: the request of its apply, unread, and the metadata of its run.

    `ticket` = a text by which the client finds out who got the plan; `agent` = the hash of its own agent's package.
    """

    ticket: str
    agent: str
    metadata: Mapping[str, str]
    request: Json


class UnreadPlan(NamedTuple):
    """A request's plan as it came, for the check of its id."""

    plan: Json


class WatchSign(NamedTuple):
    """What a watch writes to the agent that waits for it; `agent` = the hash of its own agent's package."""

    agent: str


class Outcome(NamedTuple):
    """The result for one replica, or for `replicas` of a model that are blocked or wait for a pilot: ready, gone,
    starting, failed, blocked or skipped. `level` = the level it was taken to; COLD without a replica id = weights on
    disks of nodes.

    `variant` = the one of its model's that it is, if that has any.
    """

    model: str
    outcome: str
    replica_id: Optional[int] = None
    nodes: Sequence[str] = ()
    message: str = ""
    code: Optional[str] = None
    seconds: Optional[float] = None
    level: Optional[str] = None
    replicas: Optional[int] = None
    address: Optional[str] = None
    addresses: Optional[Sequence[str]] = None
    weights: Optional[GotWeights] = None
    notes: Optional[Sequence[str]] = None
    variant: Optional[str] = None


POLL_S = 0.05
MAX_TEXT = 1 << 30
"""The largest document in bytes, unpacked."""


def take_document(name: str) -> Optional[Json]:
    """Return the named document and remove it; None = not there (yet). Raises ValueError or zlib.error for another."""
    key = f"gcs://{name}".encode()
    data = _internal_kv_get(key)
    if data is None:
        return None
    _internal_kv_del(key)
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(data, MAX_TEXT)
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise ValueError(f"the document {name} is cut, or too large")
    return json.loads(text)


def wait_for_document(name: str, timeout_s: float) -> Optional[Json]:
    """Return the document as soon as it is there; None if it does not arrive in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = take_document(name)
        if found is not None or time.monotonic() >= deadline:
            return found
        time.sleep(POLL_S)


EVENT_VERSION = "1.0"


class Requested(Protocol):
    """What every request says."""

    @property
    def tool_version(self) -> str:
        """The version of the client."""

    @property
    def job(self) -> str:
        """The id of the run's job."""


class EventStream:
    """Numbers and writes the events of one run; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seq = 0
        self._broken = ""

    def emit(self, kind: str, message: str, level: str = "info", **fields: Any) -> None:
        """Write one event; `fields` are JSON, or values that have a JSON form, without secrets."""
        with self._lock:
            event = {
                "seq": self._seq,
                "time": moment(time.time()),
                "type": kind,
                "level": level,
                "message": message,
            }
            event.update(document_of(fields))
            self._seq += 1
            # ASCII only: an engine's last output may have other line ends, or characters outside the job's locale
            line = self._broken + json.dumps(event, separators=(",", ":"))
            try:
                print(line, flush=True)
                self._broken = ""
            except OSError:  # a full disk loses events, not the run
                self._broken = "\n"

    def begin(self, request: Requested, **fields: Any) -> None:
        """Write the first event of a run: versions of events, Ray and client, and the job."""
        self.emit("version", f"fleetctl agent, events {EVENT_VERSION}, ray {ray.__version__}", version=EVENT_VERSION,
                  toolVersion=request.tool_version, job=request.job, **fields)

    def end(self, code: int, message: str, outcomes: Sequence[Outcome] = (), **fields: Any) -> int:
        """Write the summary of a run and return its exit code."""
        level = {0: "info", 3: "warning"}.get(code, "error")
        self.emit("runSummary", message, level=level, outcomes=outcomes, exitCode=code, **fields)
        return code
