"""The four simulated nodes of the demo. Ray does not check the CPUs, GPUs and memory that a node declares."""

from __future__ import annotations

from dataclasses import dataclass, field

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class DemoNode:
    """One simulated node. Ray and fleetctl show its `name`, because all nodes share one IP address."""

    name: str
    cpus: int
    gpus: int
    memory_bytes: int
    labels: dict[str, str] = field(default_factory=dict)

    def all_labels(self) -> dict[str, str]:
        """Return the node's labels, including its name."""
        return {"fleet.io/node": self.name, **self.labels}

    def describe(self) -> str:
        """Return one line for display: name, CPUs, cards."""
        cards = f", {self.gpus} simulated {self.labels['ray.io/accelerator-type']}" if self.gpus else ""
        return f"{self.name:<7} {self.cpus} CPUs{cards}"


def _gpu_node(name: str, gpus: int, card: str, **labels: str) -> DemoNode:
    all_labels = {"ray.io/accelerator-type": card, **{f"fleet.io/{key}": value for key, value in labels.items()}}
    return DemoNode(name, cpus=16, gpus=gpus, memory_bytes=128 * GIB, labels=all_labels)


DEMO_NODES = (
    DemoNode("head", cpus=4, gpus=0, memory_bytes=16 * GIB, labels={"fleet.io/pool": "head"}),
    _gpu_node("node-a", 2, "L4", pool="l4"),
    _gpu_node("node-b", 4, "H100", pool="h100", fabric="ib-0"),
    _gpu_node("node-c", 4, "H100", pool="h100", fabric="ib-0"),
)
