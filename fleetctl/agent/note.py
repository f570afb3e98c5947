"""What an apply leaves behind for the next plan: which nodes it found draining, in the metadata of its own job.

No GET of Ray's dashboard tells that a node is draining, and a drain is never taken back. The list of jobs is read with
one GET.
"""

from __future__ import annotations

import json
from typing import Collection

from ray._private.ray_constants import KV_NAMESPACE_JOB
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

JOB_KEY = "_ray_internal_job_info_"
DRAINING = "draining"


def note_draining(job: str, node_ids: Collection[str]) -> None:
    """Write the ids of the draining nodes into our job's metadata; a Ray that keeps jobs in another way has no note."""
    key = f"{JOB_KEY}{job}".encode()
    try:
        info = json.loads(_internal_kv_get(key, namespace=KV_NAMESPACE_JOB))
        info["metadata"] = {**(info.get("metadata") or {}), DRAINING: " ".join(sorted(node_ids))}
        _internal_kv_put(key, json.dumps(info).encode(), overwrite=True, namespace=KV_NAMESPACE_JOB)
    except Exception:  # a note is worth no apply
        return
