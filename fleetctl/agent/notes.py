"""Notes of the agent's job for later plans, in the job's own metadata, which the dashboard lists."""

from __future__ import annotations

import json

from ray._private.ray_constants import KV_NAMESPACE_JOB
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

JOB_KEY = "_ray_internal_job_info_"


def note(job: str, key: str, text: str) -> bool:
    """Set `key` of our job's metadata to `text`, and return whether that succeeded."""
    name = f"{JOB_KEY}{job}".encode()
    try:
        info = json.loads(_internal_kv_get(name, namespace=KV_NAMESPACE_JOB))
        info["metadata"] = {**(info.get("metadata") or {}), key: text}
        _internal_kv_put(name, json.dumps(info).encode(), overwrite=True, namespace=KV_NAMESPACE_JOB)
    except Exception:  # a note must never fail an apply
        return False
    return True
