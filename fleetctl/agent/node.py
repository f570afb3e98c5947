"""An actor process's view of its surroundings: node, cards, log folder, and whether Ray restarted it."""

from __future__ import annotations

import os
import time
from typing import Dict, List, Mapping, Optional

import ray
import ray._private.state
import ray._private.worker

from .messages import Lifecycle

MAX_BACKOFF_S = 300.0
CUDA, HIP, ONEAPI = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR"
OTHER_ACCELERATORS = (
    "ASCEND_RT_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "NEURON_RT_VISIBLE_CORES", "TPU_VISIBLE_CHIPS",
)


def log_path(file_name: str) -> str:
    """Return the path in Ray's session log folder, which the dashboard serves even after this process has ended."""
    return os.path.join(ray._private.worker.global_worker.node.get_logs_dir_path(), file_name)


def granted_cards() -> List[str]:
    """Return the ids of this actor's cards, as in Ray's visible-devices variable."""
    ids = ray.get_runtime_context().get_accelerator_ids()
    return [str(card) for card in ids.get("GPU", [])]


def visible_devices(granted: List[str], node: Mapping[str, str]) -> Dict[str, str]:
    """Return the variables that restrict an engine to its granted cards, for every vendor.

    They include Ray's variable for this node's GPUs, even if Ray is configured not to set it. The node's own variable
    for HIP is replaced, as it would contradict ours. The node's ROCR_VISIBLE_DEVICES is kept: Ray's numbering already
    skips the cards that it hides.
    """
    ids = ",".join(granted)
    variables = {CUDA: ids}
    if HIP in node:
        variables[HIP] = ids
    name = ray_gpu_variable() if granted else None
    if name:
        variables[name] = f"level_zero:{ids}" if name == ONEAPI else ids
    return variables


def ray_gpu_variable() -> Optional[str]:
    """Return the variable with which Ray itself selects GPUs on this node; its manager knows their vendor."""
    try:
        from ray._private.accelerators import get_accelerator_manager_for_resource

        manager = get_accelerator_manager_for_resource("GPU")
        return manager.get_visible_accelerator_ids_env_var() if manager else None
    except Exception:  # a private API of Ray: without it CUDA_VISIBLE_DEVICES selects the engine's cards
        return None


def other_accelerators() -> Dict[str, str]:
    """Return Ray's variables for accelerators that are not GPUs."""
    return {name: os.environ[name] for name in OTHER_ACCELERATORS if name in os.environ}


def was_restarted() -> bool:
    """Return whether Ray has restarted this actor."""
    return bool(ray.get_runtime_context().was_current_actor_reconstructed)


def restart_count() -> int:
    """Return how many times Ray has restarted this actor; 1 if Ray does not answer."""
    try:
        return int(ray._private.state.actors(ray.get_runtime_context().get_actor_id())["NumRestarts"])
    except Exception:
        return 1


def back_off(lifecycle: Lifecycle) -> None:
    """Wait before a restart: the model's backoff, doubled with each restart, up to five minutes."""
    doublings = min(16, max(0, restart_count() - 1))
    time.sleep(min(MAX_BACKOFF_S, lifecycle.restart_backoff * 2 ** doublings))
