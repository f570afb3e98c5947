"""A real Ray with its own autoscaler (version 2), whose nodes are raylets on this machine: Ray's fake node provider."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest.mock import patch

import ray
from cluster import end, tree_of
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID, FAKE_HEAD_NODE_TYPE
from ray_keeper import NODE, Keeper, main

from fleetctl.demo.lifecycle import free_port

AUTOSCALER = {"RAY_enable_autoscaler_v2": "1", "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1",
              "SCAN_EVENT_DIR_INTERVAL_SECONDS": "1"}
HEAD = {"RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID, "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID}
NOTHING_TO_RUN = (
    "initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands",
    "head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files", "rsync_exclude", "rsync_filter")


class AutoscalingKeeper(Keeper):
    """No GPU node at first, and up to three of type `big` on request; an idle node is removed after some seconds."""

    def __init__(self) -> None:
        port, config = free_port(), Path(os.environ["RAY_TMPDIR"]) / "autoscaler.json"
        config.write_text(json.dumps({
            **{key: [] for key in NOTHING_TO_RUN}, "auth": {}, "file_mounts": {}, "cluster_name": "tests",
            "max_workers": 3, "idle_timeout_minutes": 0.1, "head_node_type": FAKE_HEAD_NODE_TYPE,
            "provider": {
                "type": "external", "disable_node_updaters": True, "disable_launch_config_check": True,
                "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
                "launch_multiple": True, "head_node_id": FAKE_HEAD_NODE_ID,
                "gcs_address": f"{ray._private.services.get_node_ip_address()}:{port}"},
            "available_node_types": {
                FAKE_HEAD_NODE_TYPE: {"resources": {"CPU": 2}, "node_config": {}, "max_workers": 0},
                "big": {"resources": {"CPU": 1, "GPU": 2, "object_store_memory": NODE["object_store_memory"]},
                        "labels": {"fleet.io/pool": "big"}, "node_config": {}, "max_workers": 3}},
        }))
        with patch.dict(os.environ, HEAD | AUTOSCALER):
            super().__init__(gcs_server_port=port, autoscaling_config=str(config))

    def big_nodes(self) -> list:
        """Ids of the living nodes that the autoscaler added."""
        return sorted(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU"))

    def shut_down(self) -> None:
        """End the added nodes too; they are processes of the autoscaler."""
        autoscaler = self.cluster.head_node.all_processes["monitor"][0].process.pid
        added = tree_of(autoscaler)
        super().shut_down()
        for pid in added:
            end(pid)


if __name__ == "__main__":
    main(AutoscalingKeeper)
