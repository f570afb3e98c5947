"""Endpoints: where each model is served now."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, computed_field

from fleetctl.documents.base import Moment, Stored, Versioned
from fleetctl.documents.inventory import address_of, host_port


def _require_address(text: str) -> str:
    """Refuse all but an IP address: most formats have no quotes for an address."""
    if (address := address_of(text)) is None:
        raise ValueError("not the IP address of a machine")
    return address


class Endpoint(Stored):
    """One serving member of a ready replica: a Standalone, or the leader of a gang."""

    replica_id: int
    group: str
    copy_index: int = Field(0, alias="copy")
    role: str
    node: str = Field(description="the node's name")
    address: Annotated[str, AfterValidator(_require_address)]
    port: Annotated[int, Field(ge=1, le=65535)]
    path: str = Field(description="the path of the model's API")

    @property
    def host_port(self) -> str:
        """Address and port, as in a URL."""
        return host_port(self.address, self.port)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def url(self) -> str:
        """The URL to which clients send requests."""
        return f"http://{self.host_port}{self.path}"


class ServedModel(Stored):
    """One model and its endpoints, if any."""

    key: str
    name: str = Field(description="the name that clients send; empty = the key cannot be one, and it has no other")
    path: str
    weight: int
    endpoints: list[Endpoint]


class Endpoints(Versioned):
    """All models of a fleet in the file's order, or of all fleets by key."""

    kind: Literal["Endpoints"] = "Endpoints"
    observed_at: Moment
    source: str
    fleet: str | None = Field(None, description="only the replicas of this fleet; null = of all fleets")
    models: list[ServedModel]
