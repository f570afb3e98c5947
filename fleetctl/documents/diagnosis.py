"""The diagnosis: everything that is wrong with client, cluster, nodes, replicas and fleet, and what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, computed_field

from fleetctl.documents.base import Moment, Stored, Versioned

Area = Literal["client", "cluster", "node", "replica", "fleet"]
AREAS: tuple[Area, ...] = ("client", "cluster", "node", "replica", "fleet")
"""In the order in which they are listed: what is wrong with the first may be the cause of the others."""


class Diagnosed(Stored):
    """One thing that is wrong, and what to do about it."""

    code: str
    severity: Literal["error", "warning"]
    area: Area
    subject: str = Field(description="what it is about: a node, a replica, a file with its line, an address")
    message: str
    advice: str = Field("", description="what to do about it")
    command: str | None = Field(None, description="a command that does it, or shows more")


class CheckRun(Stored):
    """One check, and how much it found."""

    name: str
    area: Area
    findings: int = 0
    skipped: str | None = Field(None, description="why it was not made; null = it was")


class Repaired(Stored):
    """One thing that --fix was to remove, and how that ended."""

    thing: Literal["placementGroup", "engine", "lock"]
    subject: str
    done: bool
    message: str = Field("", description="why it is still there")


class Diagnosis(Versioned):
    """Every check and every finding, in the order of areas."""

    kind: Literal["Diagnosis"] = "Diagnosis"
    observed_at: Moment
    source: str | None = Field(None, description="the dashboard; null = it is not known")
    fleet: str | None = None
    nodes_examined: int = Field(0, description="how many nodes answered; 0 without --nodes")
    checks: list[CheckRun]
    findings: list[Diagnosed]
    repaired: list[Repaired] = Field(default_factory=list, description="what --fix did before the checks were made")

    @computed_field(description="1 where a finding is an error, else 0")  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> int:
        """Return the exit code of `doctor`: warnings do not fail."""
        return int(any(one.severity == "error" for one in self.findings))


class Need(NamedTuple):
    """What an engine needs on its node; `path` = the PATH of the engine where the fleet file sets it."""

    kind: Literal["command", "variable", "workdir", "port"]
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
    """The file system of a path, in bytes."""

    path: str
    total: int
    free: int


class OrphanProcess(Stored):
    """A process with the variables of an engine of ours, and no replica above it. `began` tells it from later ones."""

    pid: int
    began: int
    command: str
    model: str
    replica_id: str


class ExaminedNode(Stored):
    """One node; `trouble` = why it did not answer."""

    node_id: str
    trouble: str = ""
    unmet: list[Unmet] = Field(default_factory=list)
    disks: list[Disk] = Field(default_factory=list)
    orphans: list[OrphanProcess] = Field(default_factory=list)


class LeftLock(Stored):
    """A lock whose job ended without releasing it."""

    fleet: str
    number: int
    job: str = ""
