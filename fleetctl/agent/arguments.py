"""What an actor is made from, in parts that Ray keeps with the actor.

A longer argument stays with the job that created the actor. That job ends, and no restart would find it.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Dict, List, Mapping, Sequence

PART = 64 << 10
"""Ray keeps an argument below 100 KiB with the actor, and 10 MiB of them in all."""


def in_parts(replica: Mapping[str, Any]) -> List[bytes]:
    """Return the arguments that an actor is created with; `replica` is JSON."""
    data = zlib.compress(json.dumps(replica).encode())
    return [data[at:at + PART] for at in range(0, len(data), PART)]


def from_parts(parts: Sequence[bytes]) -> Dict[str, Any]:
    """Return what `in_parts` was given."""
    replica: Dict[str, Any] = json.loads(zlib.decompress(b"".join(parts)))
    return replica
