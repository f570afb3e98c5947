"""The four simulated nodes of the demo, and their keeper: the only process that imports ray. It starts them and waits.

`lifecycle.start_cluster` runs it as `python -m fleetctl.demo.cluster HOME`, with Ray's settings in its environment. Ray
ties its processes to the keeper, so they end with it, however it ends.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from fleetctl.demo.home import DemoHome
from fleetctl.documents.selector import SIMULATED_CARDS

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 100 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class DemoNode:
    """One simulated node. Ray and fleetctl show its `name`, because all nodes share one IP address.

    Ray does not check the CPUs, GPUs and memory that a node declares.
    """

    name: str
    cpus: int
    gpus: int
    memory_bytes: int
    labels: dict[str, str] = field(default_factory=dict)

    def arguments(self, weights: Path) -> dict[str, object]:
        """Return Ray's arguments for the node; `weights` = where each node has a folder for the weights it fetches."""
        return {
            "node_name": self.name,
            "num_cpus": self.cpus,
            "num_gpus": self.gpus,
            "memory": self.memory_bytes,
            "object_store_memory": OBJECT_STORE_BYTES,
            "labels": self.all_labels(),
            "env_vars": {"FLEETCTL_CACHE_DIR": str(weights / self.name)},
        }

    def all_labels(self) -> dict[str, str]:
        """Return the node's labels, including its name."""
        return {"fleet.io/node": self.name, **self.labels}

    def describe(self) -> str:
        """Return one line for display: name, CPUs, cards."""
        cards = f", {self.gpus} simulated {self.labels['ray.io/accelerator-type']}" if self.gpus else ""
        return f"{self.name:<7} {self.cpus} CPUs{cards}"


def _gpu_node(name: str, gpus: int, card: str, **labels: str) -> DemoNode:
    all_labels = {"ray.io/accelerator-type": card, **dict([SIMULATED_CARDS]),
                  **{f"fleet.io/{key}": value for key, value in labels.items()}}
    return DemoNode(name, cpus=16, gpus=gpus, memory_bytes=128 * GIB, labels=all_labels)


DEMO_NODES = (
    DemoNode("head", cpus=4, gpus=0, memory_bytes=16 * GIB, labels={"fleet.io/pool": "head"}),
    _gpu_node("node-a", 2, "L4", pool="l4"),
    _gpu_node("node-b", 4, "H100", pool="h100", fabric="ib-0"),
    _gpu_node("node-c", 4, "H100", pool="h100", fabric="ib-0"),
)


def keep(home: DemoHome) -> None:
    """Start the cluster described by the state in `home`, and keep it until this process is ended."""
    from ray.cluster_utils import Cluster

    state = home.read()
    if state is None:
        raise SystemExit(f"{home.state_file} describes no cluster")
    state = replace(state, keeper_pid=os.getpid())
    head, *others = DEMO_NODES
    port = urlsplit(state.address).port
    dashboard = {
        "include_dashboard": True,
        "dashboard_host": LOOPBACK,
        "dashboard_port": port,
        "dashboard_agent_listen_port": 0,  # Ray's fixed default may collide with another Ray on this machine
        "include_log_monitor": False,  # it keeps rereading every log for drivers, and the demo has none
    }
    cluster = Cluster(initialize_head=True, head_node_args={**head.arguments(home.weights), **dashboard})
    if urlsplit(f"http://{cluster.webui_url}").port != port:
        raise SystemExit(f"Ray's dashboard came up at {cluster.webui_url}, not at port {port}")
    for count, node in enumerate(others, start=1):
        home.write(replace(state, nodes_up=tuple(up.name for up in DEMO_NODES[:count])))
        cluster.add_node(wait=False, **node.arguments(home.weights))
    cluster.wait_for_nodes()
    home.write(replace(state, nodes_up=tuple(up.name for up in DEMO_NODES), ready=True))
    signal.pause()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    keep(DemoHome(Path(sys.argv[1])))
