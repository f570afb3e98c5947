"""An actor process's view of its place: node, cards, log folder, and whether Ray restarted it."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Mapping, Optional

import ray
import ray._private.state
import ray._private.worker

MAX_BACKOFF_S = 300.0
CUDA, HIP, ONEAPI = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR"
OTHER_KINDS = (
    "ASCEND_RT_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "NEURON_RT_VISIBLE_CORES", "TPU_VISIBLE_CHIPS",
)


def log_path(file_name: str) -> str:
    """Return the path in Ray's session log folder, which the dashboard serves while we live and after."""
    return os.path.join(ray._private.worker.global_worker.node.get_logs_dir_path(), file_name)


def granted_cards() -> List[str]:
    """Return the ids of the cards that Ray granted to this actor, in the form of the visible-devices variable."""
    ids = ray.get_runtime_context().get_accelerator_ids()
    return [str(card) for card in ids.get("GPU", [])]


def visible_devices(granted: List[str], node: Mapping[str, str]) -> Dict[str, str]:
    """Return the variables by which an engine sees its cards: each names the granted ones, for every vendor.

    Ray's own variable for this node's GPUs is among them, also where Ray is configured not to set it. The node's own
    variable for HIP is replaced too, as it would contradict it. ROCR_VISIBLE_DEVICES stays the node's: Ray's numbers
    leave out the same cards.
    """
    ids = ",".join(granted)
    variables = {CUDA: ids}
    if HIP in node:
        variables[HIP] = ids
    name = rays_variable() if granted else None
    if name:
        variables[name] = f"level_zero:{ids}" if name == ONEAPI else ids
    return variables


def rays_variable() -> Optional[str]:
    """Return the variable by which Ray itself selects GPUs on this node: its manager knows whose they are."""
    try:
        from ray._private.accelerators import get_accelerator_manager_for_resource

        manager = get_accelerator_manager_for_resource("GPU")
        return manager.get_visible_accelerator_ids_env_var() if manager else None
    except Exception:  # private to Ray: without it an engine sees the cards of CUDA_VISIBLE_DEVICES
        return None


def other_kinds() -> Dict[str, str]:
    """Return Ray's variables for accelerators that are not GPUs."""
    return {name: os.environ[name] for name in OTHER_KINDS if name in os.environ}


def was_restarted() -> bool:
    """Return whether an earlier incarnation of this actor was up before."""
    return bool(ray.get_runtime_context().was_current_actor_reconstructed)


def restart_count() -> int:
    """Return how many times Ray has restarted this actor; 1 when Ray does not answer."""
    try:
        return int(ray._private.state.actors(ray.get_runtime_context().get_actor_id())["NumRestarts"])
    except Exception:
        return 1


def back_off(lifecycle: Mapping[str, Any]) -> None:
    """Wait before a restart: the model's backoff, doubled with each restart, at most five minutes."""
    base_s = float(lifecycle["restartBackoff"])
    time.sleep(min(MAX_BACKOFF_S, base_s * 2 ** min(16, max(0, restart_count() - 1))))
