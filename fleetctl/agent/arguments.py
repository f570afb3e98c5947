"""Constructor arguments of an actor, split into parts small enough for Ray to keep with the actor.

A longer argument stays with the job that created the actor. That job ends, and a restart would not find it.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Dict, List, Mapping, Sequence

PART = 64 << 10
"""Ray keeps arguments below 100 KiB each with the actor, 10 MiB in all."""


def in_parts(replica: Mapping[str, Any]) -> List[bytes]:
    """Return the arguments to create an actor with; `replica` is JSON."""
    data = zlib.compress(json.dumps(replica).encode())
    return [data[at:at + PART] for at in range(0, len(data), PART)]


def from_parts(parts: Sequence[bytes]) -> Dict[str, Any]:
    """Return the replica that `in_parts` has split."""
    replica: Dict[str, Any] = json.loads(zlib.decompress(b"".join(parts)))
    return replica
