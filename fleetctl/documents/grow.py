"""`spec.cluster.grow`: the types of nodes that the cluster's autoscaler may add."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from fleetctl.documents.base import Authored, refusal
from fleetctl.documents.quantity import Bytes, Cpus
from fleetctl.documents.selector import LabelKey, LabelValue

MAX_CARDS = 64
MAX_NODES = 10_000


class GrowNode(Authored):
    """The resources and labels of a new, empty node of a type."""

    gpus: Annotated[int, Field(ge=0, le=MAX_CARDS)] = Field(0, description="its cards")
    vram: Bytes = Field(0, description="memory of each card; absent = unknown, so no member with vram fits")
    cpus: Cpus = Field(description="its CPUs")
    memory: Bytes = Field(description="its host memory")
    labels: Annotated[dict[LabelKey, LabelValue], Field(min_length=1)] = Field(
        description="its Ray labels, by which the autoscaler chooses the type; a node with all of them is of this type")

    @model_validator(mode="after")
    def _can_be_asked_for(self) -> GrowNode:
        if not self.gpus and not self.cpus:
            raise refusal("empty_node", "{found} has neither GPUs nor CPUs", "this node", "gpus, cpus or both")
        return self


class GrowType(Authored):
    """One type of node that the autoscaler may add: a worker group of KubeRay, or a node type of Ray's autoscaler."""

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(description="the name of the type, for people")
    node: GrowNode = Field(description="one node of this type")
    max: Annotated[int, Field(ge=1, le=MAX_NODES)] = Field(
        description="the most nodes of this type, existing ones included")
