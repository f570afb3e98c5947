"""Weights as the cluster and a plan say it: what a member serves, how it got its own, which sources were chosen."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from fleetctl.documents.base import Stored

Artifact = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="the hash of the index")]
ViewId = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


def is_absent(value: object) -> bool:
    """Return whether a key is left out of a document: most members have no weights."""
    return value is None


def is_zero(value: object) -> bool:
    """Return whether a number or a list is left out of a document: most plans reload nothing."""
    return not value


class GotWeights(Stored):
    """How a member, or all of a replica together, got their weights when they started."""

    source: str = Field(description="disk, peer or origin; of several the one that gave most")
    from_: str = Field("", alias="from", description="the replica, folder or URL")
    bytes: int = Field(0, description="that came over the network or from the origin")
    seconds: float = 0
    reused: int = Field(0, description="bytes that the node had already")
    left: list[str] = Field(default_factory=list, description="the sources that were left for another, and why")


class ServedWeights(Stored):
    """What one member serves to nodes that start later."""

    artifact: Artifact
    view: ViewId | None = Field(None, description="the part that its engine has; null = all files")
    whole: bool = Field(False, description="it has all files, and makes any part of them")
    port: Annotated[int, Field(ge=1, le=65535)]
    bytes: int | None = Field(None, ge=0, description="of what its engine has")
    fetched: GotWeights | None = Field(None, description="how it came there")


class WeightSource(Stored):
    """A replica that is ready and serves what a new member needs."""

    replica: str = Field(description="<model>/<replicaId>")
    node_id: str
    node: str
    address: str = Field(description="host and port of its weights")
    view: ViewId | None = Field(None, description="the part that its engine has; null = all files")
    whole: bool = Field(False, description="it has all files, and makes the part that is asked for")
    bytes: int | None = Field(None, description="to fetch; null = not known before the part is made")
    wave: int | None = Field(
        None, ge=2, exclude_if=is_absent,
        description="left out = the first; in a later one it serves others first, and those serve, too")


class PlannedWeights(Stored):
    """The weights of one planned member. Without sources they come from `from`."""

    artifact: Artifact
    from_: list[dict[str, str]] = Field(alias="from", description="the origins, as in the file")
    sources: list[WeightSource] = Field(
        default_factory=list, description="best first; in the first wave none of them is planned for more than four "
                                          "fetches")
    view: dict[str, Any] | None = Field(None, description="as in the file; null = all files")
