"""The name of the file an engine writes to, in Ray's session log folder; the same after every restart."""

from __future__ import annotations

import hashlib
import re

MAX_READABLE = 60


def log_name(namespace: str, model: str, replica_id: int, group: str, copy_index: int, rank: int) -> str:
    """Return a file name that a person can read and that no two members share, whatever namespace they are in."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.")[:MAX_READABLE] or "model"
    digest = hashlib.sha256(f"{namespace}\n{model}".encode()).hexdigest()[:8]
    return f"fleetctl-{readable}-{digest}-{replica_id}-{group}-{copy_index}-{rank}.log"
