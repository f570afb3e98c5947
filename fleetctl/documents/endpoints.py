"""The endpoints: where each model is served now."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, computed_field

from fleetctl.documents.base import Moment, Stored, Versioned
from fleetctl.documents.inventory import host_port


class Endpoint(Stored):
    """One serving member of a ready replica: a Standalone, or the leader of a gang."""

    replica_id: int
    group: str
    copy_index: int = Field(0, alias="copy")
    role: str
    node: str = Field(description="its name")
    address: str
    port: int
    path: str = Field(description="of the model's API")

    @property
    def host_port(self) -> str:
        """Return address and port as URLs have them."""
        return host_port(self.address, self.port)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def url(self) -> str:
        """Return where clients send requests."""
        return f"http://{self.host_port}{self.path}"


class ServedModel(Stored):
    """One model and its endpoints, which may be none."""

    key: str
    name: str = Field(description="the name that clients ask for")
    path: str
    weight: int
    endpoints: list[Endpoint]


class Endpoints(Versioned):
    """All models of a fleet, or of all fleets, in the file's order or by key."""

    kind: Literal["Endpoints"] = "Endpoints"
    observed_at: Moment
    source: str
    fleet: str | None = Field(None, description="only the replicas of this fleet; null = of all")
    models: list[ServedModel]
