"""The keeper: the only process of the demo that imports ray. It starts the nodes, records their state, and waits.

`lifecycle.start_cluster` runs it as `python -m fleetctl.demo.cluster HOME`, with Ray's settings in its environment. Ray
ties its processes to the keeper, so they end with it, however it ends.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from fleetctl.demo.home import DemoHome
from fleetctl.demo.nodes import DEMO_NODES, DemoNode

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 100 << 20


def node_arguments(node: DemoNode) -> dict[str, object]:
    """Return Ray's arguments for a node."""
    return {
        "node_name": node.name,
        "num_cpus": node.cpus,
        "num_gpus": node.gpus,
        "memory": node.memory_bytes,
        "object_store_memory": OBJECT_STORE_BYTES,
        "labels": node.all_labels(),
    }


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
    cluster = Cluster(initialize_head=True, head_node_args={**node_arguments(head), **dashboard})
    if urlsplit(f"http://{cluster.webui_url}").port != port:
        raise SystemExit(f"Ray's dashboard came up at {cluster.webui_url}, not at port {port}")
    for count, node in enumerate(others, start=1):
        home.write(replace(state, nodes_up=tuple(up.name for up in DEMO_NODES[:count])))
        cluster.add_node(wait=False, **node_arguments(node))
    cluster.wait_for_nodes()
    home.write(replace(state, nodes_up=tuple(up.name for up in DEMO_NODES), ready=True))
    signal.pause()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    keep(DemoHome(Path(sys.argv[1])))
