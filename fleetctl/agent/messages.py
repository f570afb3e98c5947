"""What a run, its actors and older releases tell each other: engines, members, actions, replicas, as typed values.

`wire.parse` reads them where they arrive, `wire.document_of` writes them where they leave; in between the agent has no
other form, so mypy finds a renamed field, and a test holds them against the client's models. In JSON a name is in camel
case, without a `_` at its end.

No `from __future__ import annotations` here: `parse` reads the types of fields, also in an actor, whose process gets
these classes by value and cannot import this module.
"""

from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

Json = Any  # a JSON value that is passed on as it is


class FromNode(NamedTuple):
    """A value of an engine's environment that is read from that of its node."""

    from_node: str


class PortProbe(NamedTuple):
    """A GET that must be answered with 200 to 399, or a port that must accept; `port` None = the member's own."""

    path: str = "/"
    port: Optional[int] = None


class ExecProbe(NamedTuple):
    """A command that must exit with 0."""

    command: Sequence[str]


class Probe(NamedTuple):
    """One of `http`, `tcp` and `exec_`, with its times in seconds. `probes.CHECKS` has the check of each kind."""

    http: Optional[PortProbe] = None
    tcp: Optional[PortProbe] = None
    exec_: Optional[ExecProbe] = None
    period: float = 1.0
    timeout: float = 5.0
    failure_threshold: int = 3

    @property
    def kind(self) -> str:
        """The kind that is set, by its field; the other fields are numbers."""
        return next(name for name in self._fields if isinstance(getattr(self, name), tuple))

    @property
    def port(self) -> Optional[int]:
        """The fixed port; None = the member's own, or no port at all."""
        return self.port_or(None)

    def port_or(self, own: Optional[int]) -> Optional[int]:
        """Return the port that is asked, the member's `own` if none is fixed; None = no port is asked."""
        probed = getattr(self, self.kind)
        return probed.port or own if hasattr(probed, "port") else None


class Stop(NamedTuple):
    """How an engine is ended: the signal that its first process gets, and how long it may then take, in seconds."""

    signal: str = "SIGTERM"
    grace: float = 30.0


class Engine(NamedTuple):
    """The command line, environment, ports by name and probes of an engine; a prefetch has only its `env`.

    `caches` = the variables with the folders of its compile caches, `version` = the command that prints its version.
    Its `stop` is its member's: a spec may be that of several models.
    """

    command: Sequence[str] = ()
    args: Sequence[str] = ()
    env: Mapping[str, Union[str, FromNode]] = {}
    ports: Sequence[str] = ()
    workdir: Optional[str] = None
    caches: Sequence[str] = ()
    version: Sequence[str] = ()
    readiness: Optional[Probe] = None
    liveness: Optional[Probe] = None


class Lifecycle(NamedTuple):
    """How a replica is started and restarted; times in seconds."""

    startup_timeout: float
    scheduling_timeout: float = 0.0
    restart_max: int = 0
    restart_backoff: float = 0.0


class WeightSource(NamedTuple):
    """A replica that serves weights; `view` None = all files, `whole` = it has all files, and can make any view."""

    replica: str
    address: str
    view: Optional[str]
    whole: bool = False


class PlannedWeights(NamedTuple):
    """The weights that a member is to have: from its `sources`, best first, or from the origins."""

    artifact: str
    from_: Sequence[Mapping[str, str]]
    sources: Sequence[WeightSource] = ()
    view: Json = None
    ports: Optional[str] = None


class GotWeights(NamedTuple):
    """How a member got its weights; `source` = disk, peer or origin, `left` = the sources that were given up."""

    source: str
    from_: str = ""
    bytes: int = 0
    seconds: float = 0.0
    reused: int = 0
    left: Sequence[str] = ()


class ServedWeights(NamedTuple):
    """The weights that a member has and serves; `view` None = all files, `port` None = it does not serve them."""

    artifact: str
    view: Optional[str]
    whole: bool = False
    port: Optional[int] = None
    ports: Optional[str] = None
    unserved: Optional[str] = None
    bytes: int = 0
    fetched: Optional[GotWeights] = None
    verified: Optional[str] = None


class GotCaches(NamedTuple):
    """How a member got its compile caches: from the `disk` of its node, a `peer`, or not, and what was wrong.

    `key` = their digest, empty = it has no folder for them.
    """

    key: str
    source: str = ""
    from_: str = ""
    bytes: int = 0
    seconds: float = 0.0
    trouble: Optional[str] = None


class Resident(NamedTuple):
    """What may use memory of each card of a node beside engines, in bytes; `process` = only one of this name."""

    memory: int = 0
    process: Optional[str] = None


class Member(NamedTuple):
    """A member of a replica on its planned node. `gpus`, `cpus` in 1/10000; `vram` and `memory` in bytes.

    A plan has no `engine`, `supervisor` (the source of the guards) and `log` (the name of its file); of a prefetch it
    has the `variables` that a member there would have. `cache_ports` = where it may serve its caches.
    """

    group: str
    copy: int
    role: str
    rank: int
    node_id: str
    node: str
    slot: int = 0
    gpus: int = 0
    vram: int = 0
    cpus: int = 0
    memory: int = 0
    weights: Optional[PlannedWeights] = None
    cache_ports: Optional[str] = None
    variables: Mapping[str, str] = {}
    cooling_cards: Sequence[str] = ()
    residents: Sequence[Resident] = ()
    stop: Optional[Stop] = None
    engine: Engine = Engine()
    supervisor: str = ""
    log: str = ""

    @property
    def engine_stop(self) -> Stop:
        """How its engine is ended."""
        return self.stop or Stop()


class Place(NamedTuple):
    """Where a member of a running replica is, and its claim, as the replica's repr says."""

    slot: Optional[int] = None
    gpus: Optional[int] = None
    vram: Optional[int] = None
    cpus: Optional[int] = None
    memory: Optional[int] = None
    group: str = ""
    copy: int = 0
    role: str = "Standalone"
    rank: int = 0
    node_id: str = ""
    ip: str = ""
    port: Optional[int] = None
    gpu_indices: Sequence[int] = ()
    gpu_uuids: Sequence[str] = ()
    unchecked: Optional[str] = None
    weights: Optional[ServedWeights] = None
    caches: Optional[GotCaches] = None


def seat_of(member: Union[Member, Place, "ReloadMember"]) -> Tuple[str, int, int]:
    """Return the key of a member within its replica."""
    return member.group, member.copy, member.rank


class Replica(NamedTuple):
    """A new replica, as its actor gets it; `op` is create or promote.

    `earlier_tries` = the actors that were given up for their cards; `created_ms` = when its run created it, in
    milliseconds since the epoch, 0 = unknown; `variant` = the one of its model's that it is, if that has any.
    """

    id: str
    model: str
    replica_id: int
    lifecycle: Lifecycle
    spec_hash: str = ""
    wanted: int = 0
    members: Sequence[Member] = ()
    op: str = "create"
    engine_hash: Optional[str] = None
    fleet: str = ""
    namespace: str = ""
    earlier_tries: Sequence[str] = ()
    created_ms: int = 0
    variant: Optional[str] = None

    @property
    def nodes(self) -> List[str]:
        """The names of its planned nodes, each once."""
        return list(dict.fromkeys(member.node for member in self.members))

    @property
    def grace_s(self) -> float:
        """How long its engines may take to end, in seconds; they end at the same time."""
        return max((member.engine_stop.grace for member in self.members), default=0.0)


class InARow(NamedTuple):
    """An actor's restarts without a long time of readiness between them, and why it ended last, if it said."""

    actor_id: str
    restarts: int = 0
    since: str = ""
    code: str = ""
    message: str = ""
    places: Sequence[Place] = ()


class WarmCopy(NamedTuple):
    """A WARM replica and the places of its members; `made_from` = the actor id of the HOT one."""

    model: str
    replica_id: int
    fleet: str
    namespace: str
    spec_hash: str
    made_from: str
    members: Sequence[Place]
    variant: Optional[str] = None


class FailedStart(NamedTuple):
    """A failure as its replica describes it: when, of which spec, and on which nodes and cards; None = not known."""
    code: str
    message: str
    at: Optional[str] = None
    spec_hash: Optional[str] = None
    fleet: Optional[str] = None
    node_ids: Sequence[str] = ()
    gpu_uuids: Sequence[str] = ()
    earlier_tries: Optional[Sequence[str]] = None
    gpu_indices: Optional[Sequence[int]] = None


class Mark(NamedTuple):
    """The repr of a replica that is up. WARM ones also have `level`, `made_from` and `locked`.

    `restarts_uncounted` = how many of Ray's restarts do not count toward `restart_max`; only of a restarted replica.
    `started_in` = the seconds from its creation to readiness; not of a restarted or a promoted one.
    """

    v: int = 1
    level: Optional[str] = None
    fleet: str = ""
    namespace: str = ""
    spec_hash: str = ""
    variant: Optional[str] = None
    engine_hash: Optional[str] = None
    made_from: Optional[str] = None
    ready_at: str = ""
    restart_max: Optional[int] = None
    restarts_uncounted: Optional[int] = None
    started_in: Optional[float] = None
    earlier_tries: Optional[Sequence[str]] = None
    failed: Optional[FailedStart] = None
    locked: Optional[bool] = None
    members: Sequence[Place] = ()


class HttpCall(NamedTuple):
    """The request that makes an engine reload; `port` None = the engine's own."""

    method: str
    path: str
    body: Json = None
    port: Optional[int] = None


class EngineAnswer(NamedTuple):
    """What an engine's answer to a request may say of it."""

    success: bool = True


class ReloadMember(NamedTuple):
    """A member of a reloading replica and its new weights."""

    group: str
    copy: int
    rank: int
    weights: Optional[PlannedWeights]


class PlannedReload(NamedTuple):
    """How a running replica loads other weights: its engine gets the `requests`; `runs` = the spec that it runs."""

    actor_id: str
    runs: str
    requests: Sequence[HttpCall]


class Action(NamedTuple):
    """One thing that an apply does for a model; `op` is create, promote, reload, or prefetch (without a replica id)."""

    id: str
    op: str
    model: str
    spec_hash: str
    lifecycle: Lifecycle
    members: Sequence[Member]
    replica_id: int = -1
    wanted: int = 0
    engine_hash: Optional[str] = None
    reload: Optional[PlannedReload] = None
    variant: Optional[str] = None

    @property
    def nodes(self) -> List[str]:
        """The names of its nodes, each once."""
        return list(dict.fromkeys(member.node for member in self.members))


class ReloadRequest(NamedTuple):
    """What a run sends to a replica's actor to make it reload: `http`, or if there are several, `requests`.

    Actors of earlier releases know only `http`.
    """

    runs: str
    spec_hash: str
    http: HttpCall
    startup_timeout: float
    members: Sequence[ReloadMember]
    requests: Sequence[HttpCall] = ()


class ReloadState(NamedTuple):
    """The state of a replica's latest reload: none, reloading, done, refused or failed.

    Once it has ended, `runs` = the replica's spec, None = not known, and `places` = its members' places.
    """

    state: str = ""
    spec_hash: str = ""
    runs: Optional[str] = ""
    at: str = ""
    places: Sequence[Place] = ()
    restarts: int = 0
    code: str = ""
    reason: str = ""
