"""The rendered fleet: all files of a fleet merged into one document, with the position of each value."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from fleetctl.documents.base import FORMAT_VERSION, Stored
from fleetctl.documents.position import FleetSource, Position


class RenderedFleet(Stored):
    """One fleet document with everything that its files extend merged into it."""

    format_version: str = Field(FORMAT_VERSION, description="the format of this document")
    kind: Literal["RenderedFleet"] = Field("RenderedFleet", description="always RenderedFleet")
    files: list[FleetSource] = Field(description="every file that was read, extended ones included")
    masked: bool = Field(description="whether values of engine environments are replaced by ***")
    fleet: dict[str, Any] = Field(description="the merged document, as fleet.schema.json describes it")
    origins: dict[str, Position] = Field(description="the position of each value, by paths as spec.models[0].replicas")
