"""What an actor process knows about where it runs: node, cards, log folder, and whether Ray restarted it."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Mapping

import ray
import ray._private.state
import ray._private.worker

MAX_BACKOFF_S = 300.0
OTHER_VENDORS = (
    "ASCEND_RT_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "HIP_VISIBLE_DEVICES", "NEURON_RT_VISIBLE_CORES",
    "ONEAPI_DEVICE_SELECTOR", "ROCR_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS",
)


def log_path(file_name: str) -> str:
    """Return the path in Ray's session log folder, which the dashboard serves while we live and after."""
    return os.path.join(ray._private.worker.global_worker.node.get_logs_dir_path(), file_name)


def granted_cards() -> List[str]:
    """Return the ids of the cards that Ray granted to this actor, as they stand in CUDA_VISIBLE_DEVICES."""
    ids = ray.get_runtime_context().get_accelerator_ids()
    return [str(card) for card in ids.get("GPU", [])]


def other_vendor_variables() -> Dict[str, str]:
    """Return the visible-device variables that Ray set for cards that are not NVIDIA's."""
    return {name: os.environ[name] for name in OTHER_VENDORS if name in os.environ}


def was_restarted() -> bool:
    """Tell whether an earlier incarnation of this actor was up before."""
    return bool(ray.get_runtime_context().was_current_actor_reconstructed)


def restart_count() -> int:
    """Return how often Ray has restarted this actor; 1 when it cannot be asked."""
    try:
        return int(ray._private.state.actors(ray.get_runtime_context().get_actor_id())["NumRestarts"])
    except Exception:
        return 1


def back_off(lifecycle: Mapping[str, Any]) -> None:
    """Wait before a restart: the model's backoff, doubled with each restart, at most five minutes."""
    base_s = float(lifecycle["restartBackoff"])
    time.sleep(min(MAX_BACKOFF_S, base_s * 2 ** min(16, max(0, restart_count() - 1))))
