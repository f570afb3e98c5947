"""What the agent finds on a node where it was asked, and what an engine needs there: see agent/examine.py."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from fleetctl.documents.base import Stored


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
