"""Weights in inventories and plans: what a member serves, how it got its own, and the chosen sources."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from fleetctl.documents.base import Moment, Stored
from fleetctl.documents.weights import Ports

Artifact = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="the hash of the index")]
ViewId = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


def is_absent(value: object) -> bool:
    """Return whether an optional key is left out of a document: most members have no weights."""
    return value is None


def is_zero(value: object) -> bool:
    """Return whether a number or list is left out of a document because it is 0 or empty, as reloads in most plans."""
    return not value


class GotWeights(Stored):
    """How a member, or all members of a replica together, got weights at their start."""

    source: str = Field(description="disk, peer or origin; if several, the one that gave most")
    from_: str = Field("", alias="from", description="the replica, folder or URL")
    bytes: int = Field(0, description="bytes from the network or the origin")
    seconds: float = 0
    reused: int = Field(0, description="bytes that the node already had")
    left: list[str] = Field(default_factory=list, description="the sources that were given up, and why")


class ServedWeights(Stored):
    """The weights that one member has, and serves to nodes that start later."""

    artifact: Artifact
    view: ViewId | None = Field(None, description="the part that its engine has; null = all files")
    whole: bool = Field(False, description="it has all files, and can make any part of them")
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="the port at which it serves them; null = it does not")
    ports: Ports | None = Field(None, exclude_if=is_absent, description="its node's weightsPorts; absent = any port")
    unserved: str | None = Field(None, exclude_if=is_absent, description="why it does not serve them")
    bytes: int | None = Field(None, ge=0, description="the size of the part that its engine has")
    fetched: GotWeights | None = Field(None, description="how it got them")
    verified: Moment | None = Field(
        None, exclude_if=is_absent,
        description="since when all its files are verified; null = they were not yet, when this was written")


class WeightSource(Stored):
    """A ready replica that serves the weights a new member needs."""

    replica: str = Field(description="<model>/<replicaId>")
    node_id: str
    node: str
    address: str = Field(description="host and port at which it serves its weights")
    view: ViewId | None = Field(None, description="the part that its engine has; null = all files")
    whole: bool = Field(False, description="it has all files, and can make the requested part")
    bytes: int | None = Field(None, description="bytes to fetch; null = unknown until the part is made")
    wave: int | None = Field(
        None, ge=2, exclude_if=is_absent,
        description="absent = the first; in a later wave it, or a member that it has served, has a free place")


class PlannedWeights(Stored):
    """The weights of one planned member. Without sources it fetches them from `from`."""

    artifact: Artifact
    from_: list[dict[str, str]] = Field(alias="from", description="the origins, as in the file")
    sources: list[WeightSource] = Field(
        default_factory=list, description="best first; each is planned for at most four fetches in the first wave")
    view: dict[str, Any] | None = Field(None, description="as in the file; null = all files")
    ports: Ports | None = Field(None, exclude_if=is_absent, description="the node's weightsPorts; absent = any port")
