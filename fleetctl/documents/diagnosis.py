"""The diagnosis: everything that is wrong with client, cluster, nodes, replicas and fleet, and what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, computed_field

from fleetctl.documents.base import Moment, Stored, Versioned

Area = Literal["client", "cluster", "node", "replica", "fleet"]
AREAS: tuple[Area, ...] = ("client", "cluster", "node", "replica", "fleet")
"""In the order of reports: a problem in an earlier area may be the cause of later ones."""


class Diagnosed(Stored):
    """One problem, and what to do about it."""

    code: str
    severity: Literal["error", "warning"]
    area: Area
    subject: str = Field(description="what it is about: a node, a replica, a file with line, an address")
    message: str
    advice: str = Field("", description="what to do about it")
    command: str | None = Field(None, description="a command that fixes it, or shows more")


class CheckRun(Stored):
    """One check, and the number of its findings."""

    name: str
    area: Area
    findings: int = 0
    skipped: str | None = Field(None, description="why it was skipped; null = it ran")


class Repaired(Stored):
    """One leftover that --fix tried to remove, and the result."""

    thing: Literal["placementGroup", "engine", "lock"]
    subject: str
    done: bool
    message: str = Field("", description="why it could not be removed")


class Diagnosis(Versioned):
    """Every check and every finding, in the order of areas."""

    kind: Literal["Diagnosis"] = "Diagnosis"
    observed_at: Moment
    source: str | None = Field(None, description="the dashboard; null = unknown")
    fleet: str | None = None
    nodes_examined: int = Field(0, description="the number of nodes that answered; 0 without --nodes")
    checks: list[CheckRun]
    findings: list[Diagnosed]
    repaired: list[Repaired] = Field(default_factory=list, description="what --fix did before the checks ran")

    @computed_field(description="1 if a finding is an error, else 0")  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> int:
        """Return the exit code of `doctor`: warnings do not fail."""
        return int(any(finding.severity == "error" for finding in self.findings))


class Need(NamedTuple):
    """What an engine needs on its node.

    `path` = the engine's PATH for a command, if the fleet file sets it; the container runtime for an image.
    """

    kind: Literal["command", "variable", "workdir", "port", "image"]
    value: str
    path: str | None = None


class Unmet(Stored):
    """A need that a node does not meet."""

    kind: str
    value: str
    path: str | None = None
    code: str
    message: str


class Disk(Stored):
    """The file system of a path, in bytes; `device` = its number on the node, None if not reported."""

    path: str
    total: int
    free: int
    device: int | None = None

    def may_be(self, other: Disk) -> bool:
        """Return whether both are the same disk, as far as is known: without a device, if the sizes are equal."""
        if self.device is None or other.device is None:
            return self.total == other.total
        return self.device == other.device


class Limits(Stored):
    """What an engine has on a node; null = no limit. `nice`, `oomScoreAdj` = how much worse than the raylet's."""

    nice: int = 0
    oom_score_adj: int = 0
    open_files: int | None = None
    locked_memory: int | None = Field(None, description="in bytes")
    rdma: bool = Field(False, description="whether the node has network cards that need locked memory")


class Segment(Stored):
    """Shared memory that no process has open: its name in /dev/shm, and its size in bytes."""

    name: str
    size: int


class SharedMemory(Stored):
    """A node's /dev/shm, in bytes, and what ended processes have left there; total 0 = there is none."""

    total: int
    free: int
    left: list[Segment] = Field(default_factory=list)


class OrphanProcess(Stored):
    """A process with the variables of an engine of ours, but no parent replica; `began` guards against a reused pid.

    `container` = the id of its container, or "unknown"; empty if it is in none. Its replica is '' if it is unknown.
    """

    pid: int
    began: int
    command: str
    model: str
    replica_id: str
    container: str = ""


class FailedCard(Stored):
    """A card that has failed itself, as its driver tells; `uuid` empty = not known."""

    number: str
    uuid: str = ""
    code: Literal["CARD_LOST", "CARD_FAULTY"]
    message: str


class ExaminedNode(Stored):
    """One node; `trouble` = why it did not answer."""

    node_id: str
    trouble: str = ""
    unmet: list[Unmet] = Field(default_factory=list)
    disks: list[Disk] = Field(default_factory=list)
    orphans: list[OrphanProcess] = Field(default_factory=list)
    cards: list[FailedCard] = Field(default_factory=list)
    driver: str = Field("", description="why its driver tells nothing of cards, or not of all")
    limits: Limits | None = None
    shared_memory: SharedMemory | None = None


class LeftLock(Stored):
    """A lock whose job ended without releasing it."""

    fleet: str
    number: int
    job: str = ""
