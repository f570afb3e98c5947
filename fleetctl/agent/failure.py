"""Why an engine or a replica failed, and how the reason gets from a replica to the agent and the client, through Ray.

Ray keeps the text of a constructor's error, and that of a worker that ends itself with SystemExit, as the actor's cause
of death. A gang that must end itself by force can do neither; it keeps its reason in Ray's table of keys, by its actor
id.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Tuple

from .mark import earlier_tries, utc_now

FAILURE_PREFIX = "FLEETCTL_FAILED "
KEPT_FAILURE = b"failure:"
KV_NAMESPACE = b"fleetctl"
Failure = Tuple[str, str]
"""A stable code, and a sentence."""

LEAVE_S = 10.0
"""How long a process may take to exit by itself, before it ends itself by force."""


class StartFailed(Exception):
    """The engine did not become ready; the message holds its last output. `place` = of the one member that failed."""

    def __init__(self, code: str, message: str, place: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(code, message, place)  # all, so that it survives pickling
        self.code = code
        self.place = place

    def __str__(self) -> str:
        return str(self.args[1])


class Refused(Exception):
    """A replica was left as it is, or not created; `code` and the message say why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def start_failure(error: Exception) -> StartFailed:
    """Return any error of a start as StartFailed: a full disk must not cost a replica its remaining restarts either."""
    if isinstance(error, StartFailed):
        return error
    return StartFailed("START_ERROR", f"{error.__class__.__name__}: {error}".strip())


def encode_failure(code: str, message: str, about: Optional[Mapping[str, Any]] = None) -> str:
    """Pack a failure so that it survives Ray's wrapping of errors; `decode_failure` unpacks it, the client `about`."""
    return FAILURE_PREFIX + json.dumps({"code": code, "message": message, **(about or {})})


def about(replica: Mapping[str, Any], place: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """Return what the client wants to know of a failure of now: when, of which spec, and on which nodes.

    `place` = of the member that failed, where that is known, with its cards; else all members count.
    """
    where = [place] if place else replica["members"]
    return {"at": utc_now(), "specHash": replica["specHash"],
            "fleet": replica["fleet"], "nodeIds": list(dict.fromkeys(member["nodeId"] for member in where)),
            "gpuUuids": list(place.get("gpuUuids") or []) if place else [], **earlier_tries(replica)}


def exit_in(seconds: float) -> None:
    """End this process by force after a while, should nothing else have ended it: Ray restarts the actor."""
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()


def end_with(reason: str) -> NoReturn:
    """End this process so that Ray keeps the reason, and restarts the actor, up to its limit. In its main thread."""
    exit_in(LEAVE_S)
    end = SystemExit(1)
    end.unexpected_error_traceback = reason  # type: ignore[attr-defined]  # Ray adds this to the cause of death
    raise end


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
    return KEPT_FAILURE + actor_id.encode()
