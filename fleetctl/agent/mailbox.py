"""Documents from the client to the running agent, in Ray's package table; each is read once and removed.

The client uploads them over HTTP (`PUT /api/packages/...`), which cannot read them back. A plan contains env values;
this way they never reach a disk.
"""

from __future__ import annotations

import json
import time
import zlib
from typing import Optional

from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get

from .messages import Json

POLL_S = 0.05


def take(name: str) -> Optional[Json]:
    """Return the named document and remove it; None = not there (yet)."""
    key = f"gcs://{name}".encode()
    data = _internal_kv_get(key)
    if data is None:
        return None
    _internal_kv_del(key)
    return json.loads(zlib.decompress(data))


def wait_for(name: str, timeout_s: float) -> Optional[Json]:
    """Return the document as soon as it is there; None if it does not arrive in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = take(name)
        if found is not None or time.monotonic() >= deadline:
            return found
        time.sleep(POLL_S)
