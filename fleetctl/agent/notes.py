"""Notes that a job of the agent leaves for later plans: in its own metadata, which the dashboard lists."""

from __future__ import annotations

import json

from ray._private.ray_constants import KV_NAMESPACE_JOB
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

JOB_KEY = "_ray_internal_job_info_"


def note(job: str, key: str, text: str) -> bool:
    """Put `text` under `key` of our job's metadata, and return whether that was done."""
    name = f"{JOB_KEY}{job}".encode()
    try:
        info = json.loads(_internal_kv_get(name, namespace=KV_NAMESPACE_JOB))
        info["metadata"] = {**(info.get("metadata") or {}), key: text}
        _internal_kv_put(name, json.dumps(info).encode(), overwrite=True, namespace=KV_NAMESPACE_JOB)
    except Exception:  # never fail an apply for a note
        return False
    return True
