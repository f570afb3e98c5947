"""Results of `prefetch` and `prune`: weights on node disks before a replica needs them, or after none does."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, computed_field

from fleetctl.documents.base import Moment, Stored, Versioned
from fleetctl.documents.weights import Artifact, GotWeights, is_absent


class FetchedWeights(Stored):
    """One artifact on one node; `fetched` null = it is missing, and `trouble` says why."""

    node_id: str
    node: str = ""
    artifact: Artifact
    fetched: GotWeights | None = None
    trouble: str = ""


class Prefetched(Versioned):
    """The result of `prefetch`: a row per node and artifact."""

    kind: Literal["Prefetched"] = "Prefetched"
    fleet: str
    model: str
    rows: list[FetchedWeights]

    @computed_field(description="0 all are present, 3 some are, 1 none is")  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> int:
        """Return the exit code of `prefetch`."""
        fetched = sum(row.fetched is not None for row in self.rows)
        return 0 if fetched == len(self.rows) else 3 if fetched else 1


class CachedArtifact(Stored):
    """One artifact in the cache of a node, with its views."""

    artifact: Artifact
    bytes: int
    used: bool = Field(False, description="a process on the node uses it, so it is kept")
    removed: bool = False
    trouble: str = Field("", description="why it could not be removed")


class NodeCache(Stored):
    """The artifacts in one node's cache that no fleet file names."""

    node_id: str
    node: str = ""
    root: str = Field("", description="the folder of the cache")
    artifacts: list[CachedArtifact] = Field(default_factory=list)
    trouble: str = Field("", description="why the node did not answer")


class PrunedRuns(Stored):
    """The ended runs of one verb that the history of their fleet does not keep, and how many of them were removed."""

    fleet: str = Field("", description="empty = they belong to no fleet, such as notes about nodes")
    verb: str
    found: int
    removed: int
    newest: Moment | None = Field(None, description="when the newest of them began")


class Pruned(Versioned):
    """The result of `prune`: what it found, and what it removed."""

    kind: Literal["Pruned"] = "Pruned"
    dry_run: bool = False
    nodes: list[NodeCache]
    runs: list[PrunedRuns] | None = Field(
        None, exclude_if=is_absent, description="only with --runs: runs instead of weights")

    @computed_field(description="3 if a node did not answer, or something was not removed, else 0")  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> int:
        """Return the exit code of `prune`; keeping what is in use is no failure."""
        left = any(not (one.removed or one.used or self.dry_run) for node in self.nodes for one in node.artifacts)
        left = left or any(row.removed < row.found and not self.dry_run for row in self.runs or ())
        return 3 if left or any(node.trouble for node in self.nodes) else 0
