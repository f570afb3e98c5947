"""Runs: the events of one, and the history of all, read from the cluster's list of jobs and never written.

Events are one JSON object per line: the agent writes them, the client shows and relays them. The first is `version`,
the last `runSummary`. Readers must show `message` of a type they do not know.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from fleetctl.documents.base import Moment, Stored, Versioned
from fleetctl.documents.inventory import Level as ReplicaLevel
from fleetctl.documents.position import FleetSource
from fleetctl.documents.weights import GotWeights, is_absent, is_zero

Level = Literal["debug", "info", "warning", "error"]
Outcome = Literal["ready", "gone", "starting", "failed", "blocked", "skipped"]
"""gone = an explicit verb ended it, as requested."""


class Event(Stored):
    """One line. Further keys depend on the type, and are kept."""

    model_config = ConfigDict(extra="allow")

    seq: int
    time: str = Field(description="RFC 3339, UTC")
    type: str
    level: Level = "info"
    message: str


class ReplicaOutcome(Stored):
    """The result for one replica; `code` and `message` say why it is not ready."""

    model: str
    replica_id: int | None = None
    outcome: Outcome
    variant: str | None = Field(None, exclude_if=is_absent, description="the one of its model's that it is")
    nodes: list[str] = Field(default_factory=list)
    address: str | None = None
    addresses: list[str] = Field(
        default_factory=list, exclude_if=is_zero,
        description="of every serving member, if there are several; the first is `address`")
    code: str | None = None
    message: str = ""
    seconds: float | None = None
    level: ReplicaLevel | None = Field(
        None, exclude_if=is_absent,
        description="the level it was taken to, if it is gone; HOT = it was promoted; COLD without a replicaId = "
                    "weights that nodes keep on their disks")
    replicas: int = Field(1, description="the number of replicas in this row; more than one only if blocked")
    weights: GotWeights | None = Field(
        None, exclude_if=is_absent, description="how its members got their weights, all together")
    notes: list[str] = Field(
        default_factory=list, exclude_if=is_zero, description="problems that did not affect the outcome")


class RunSummary(Event):
    """The last line of an apply."""

    type: Literal["runSummary"] = "runSummary"
    outcomes: list[ReplicaOutcome] = Field(default_factory=list)
    exit_code: int
    interrupted: bool = False
    waited: bool = Field(True, description="false = --no-wait: created replicas were not waited for")


RunState = Literal["ok", "partial", "unknown", "running", "refused"]


class HistoryEntry(Stored):
    """One run: an apply, or an explicit verb. A value that its job does not record is null."""

    id: str = Field(description="the Ray job's submission id")
    verb: str = Field(description="apply, evict or restart; of a note: cordon, uncordon or slots")
    command: str | None = Field(None, description="the command that submitted it: apply, scale, deploy, watch, ...")
    step_of: str | None = Field(None, description="the replace or drain that it is a step of, as replace-<id>")
    fleet: str | None = None
    namespace: str | None = Field(None, description="the Ray namespace of its replicas")
    state: RunState = Field(description="ok, partial, unknown (it died, or its log is gone), running, or refused (it "
                                        "ended before any action)")
    code: str | None = Field(None, description="why it is not ok, if its replicas alone do not explain it: "
                                               "INTERRUPTED, DIED, LOG_GONE, NO_LONGER_KNOWN, WAITING, LOCK_HELD, "
                                               "PLAN_USED, NOT_BEGUN")
    message: str = Field(description="one sentence: its result, or its progress")
    started_at: Moment | None = None
    ended_at: Moment | None = None
    seconds: float | None = Field(None, description="its duration")
    who: str | None = Field(None, description="the name given by the person who started it")
    run: str | None = Field(None, description="the address of the CI run that started it")
    tool_version: str | None = None
    agent: str | None = Field(None, description="SHA-256 of the zip file of the agent that it ran, as its starter says")
    agent_of_this_version: bool | None = Field(None, description="this fleetctl would send the same agent")
    plan_id: str | None = None
    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = Field(None, description="the fleet files had uncommitted changes")
    create: int | None = Field(None, description="the number of replicas to create")
    replica: str | None = Field(None, description="evict, restart: the replica it names, if it names one")
    replicas: list[str] = Field(default_factory=list, description="evict, restart: the replicas it names")
    level: ReplicaLevel | None = Field(None, exclude_if=is_absent, description="evict --to: the level it takes them to")
    counts: dict[Outcome, int] = Field(
        default_factory=dict, description="the number of replicas per outcome, as the cluster has it now")
    forgotten: int = Field(
        0, exclude_if=is_zero, description="the number of replicas that were starting when the run ended and that Ray "
                                           "no longer knows; not in `counts`")


class _RunHead(Versioned):
    """The leading keys of the document, so that they come first in JSON."""

    kind: Literal["HistoryRun"] = "HistoryRun"


class HistoryRun(HistoryEntry, _RunHead):
    """One run with all its details."""

    files: list[FleetSource] = Field(default_factory=list, description="the fleet files its plan was made from")
    outcomes: list[ReplicaOutcome] = Field(
        default_factory=list, description="the result of each replica; for a run without a summary, as far as its log "
                                          "has it")
    events: list[Event] = Field(default_factory=list, description="its log")


class History(Versioned):
    """Runs, newest first."""

    kind: Literal["History"] = "History"
    source: str = Field(description="the cluster's dashboard")
    fleet: str | None = Field(None, description="only the runs of this fleet; null = of all fleets")
    total: int = Field(description="the number of runs the cluster still lists; `runs` are the newest of them")
    runs: list[HistoryEntry] = Field(default_factory=list)
