"""Why an engine or a replica did not start, and how the reason gets from a replica to the agent, through Ray.

Mostly a constructor raises, and Ray keeps the text as the actor's cause of death. A gang that must end itself by force
cannot raise; it keeps its reason in Ray's table of keys, by its actor id.
"""

from __future__ import annotations

import json
from typing import List, Optional, Tuple

FAILURE_PREFIX = "FLEETCTL_FAILED "
KV_NAMESPACE = b"fleetctl"
Failure = Tuple[str, str]
"""A stable code, and a sentence."""


class StartFailed(Exception):
    """The engine did not become ready; the message holds its last output."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)  # both, so that it survives pickling
        self.code = code

    def __str__(self) -> str:
        return str(self.args[1])


def encode_failure(code: str, message: str) -> str:
    """Pack a failure so that it survives Ray's wrapping of constructor errors; `decode_failure` unpacks it."""
    return FAILURE_PREFIX + json.dumps({"code": code, "message": message})


def decode_failure(text: str) -> Failure:
    """Return the failure in an error text of Ray; another error is REPLICA_DIED with Ray's own first line."""
    for line in reversed(text.splitlines()):
        _, found, packed = line.partition(FAILURE_PREFIX)
        if found:
            try:
                failure, _ = json.JSONDecoder().raw_decode(packed)
                return str(failure["code"]), str(failure["message"])
            except (ValueError, KeyError, TypeError):
                continue
    lines: List[str] = [line.strip() for line in text.splitlines() if line.strip()]
    return "REPLICA_DIED", lines[0] if lines else "Ray gave no reason"


def keep_failure(actor_id: str, code: str, message: str) -> None:
    """Keep the failure of an actor that will end without raising."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(_key(actor_id), encode_failure(code, message).encode(), overwrite=True, namespace=KV_NAMESPACE)


def kept_failure(actor_id: str) -> Optional[Failure]:
    """Return the failure an actor has kept, or None."""
    from ray.experimental.internal_kv import _internal_kv_get

    kept = _internal_kv_get(_key(actor_id), namespace=KV_NAMESPACE)
    return decode_failure(kept.decode(errors="replace")) if kept else None


def _key(actor_id: str) -> bytes:
    return f"failure:{actor_id}".encode()
