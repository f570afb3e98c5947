"""Why an engine or a replica failed, and how Ray carries the reason from a replica to the agent and the client.

Ray keeps the text of a constructor's error, or of the SystemExit with which a worker ends itself, as the actor's cause
of death. A gang that must end itself by force can raise neither; it keeps its reason in Ray's key-value table, by its
actor id.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Callable, NoReturn, Optional, Sequence

from .cards import CARD_FAILURES
from .mark import utc_now
from .messages import FailedStart, Place, Replica
from .wire import document_of, parse

FAILURE_PREFIX = "FLEETCTL_FAILED "
KEPT_FAILURE = b"failure:"
KV_NAMESPACE = b"fleetctl"

LEAVE_S = 10.0
"""How long a process may take to exit normally before it ends itself by force."""


class StartFailed(Exception):
    """The engine did not become ready; the message has its last output. `places` = those of the failed members."""

    def __init__(self, code: str, message: str, places: Sequence[Place] = ()) -> None:
        super().__init__(code, message, places)  # all of them, so that the error survives pickling
        self.code = code
        self.places = places

    def __str__(self) -> str:
        return str(self.args[1])


class Refused(Exception):
    """A replica was left unchanged or not created; `code` and the message give the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def first_line(error: Exception) -> str:
    """Return the kind of an unexpected error and the first line of its text."""
    return f"{error.__class__.__name__}: {error}".splitlines()[0]


def start_failure(error: Exception) -> StartFailed:
    """Return any error of a start as StartFailed: even a full disk must not use up a replica's restarts."""
    if isinstance(error, StartFailed):
        return error
    return StartFailed("START_ERROR", f"{error.__class__.__name__}: {error}".strip())


def about(replica: Replica, failure: StartFailed) -> FailedStart:
    """Return a failure that happens now with its details: time, spec, fleet, nodes and cards.

    If it is not known which members have failed, all members' nodes count, and no card. Numbers of cards are told only
    of those that have failed themselves, whose UUID may not be known.
    """
    nodes = [place.node_id for place in failure.places] or [member.node_id for member in replica.members]
    return FailedStart(
        failure.code, str(failure), utc_now(), replica.spec_hash, replica.fleet, tuple(dict.fromkeys(nodes)),
        tuple(uuid for place in failure.places for uuid in place.gpu_uuids), replica.earlier_tries or None,
        [index for place in failure.places for index in place.gpu_indices] if failure.code in CARD_FAILURES else None)


def encode_failure(failure: FailedStart) -> str:
    """Pack a failure so that it survives Ray's wrapping of errors; `decode_failure` and the client unpack it."""
    return FAILURE_PREFIX + json.dumps(document_of(failure))


def exit_in(seconds: float) -> None:
    """End this process by force after this time, unless it ends before; Ray then restarts the actor."""
    later(seconds, os._exit, 1)


def later(seconds: float, call: Callable[..., object], *arguments: object) -> None:
    """Make a call after this time, in a thread that keeps no process from ending."""
    timer = threading.Timer(seconds, call, arguments)
    timer.daemon = True
    timer.start()


def end_with(reason: str) -> NoReturn:
    """End this process so that Ray keeps the reason and restarts the actor, up to its limit. Main thread only."""
    exit_in(LEAVE_S)
    end = SystemExit(1)
    end.unexpected_error_traceback = reason  # type: ignore[attr-defined]  # Ray adds this to the cause of death
    raise end


def decode_failure(text: str) -> FailedStart:
    """Return the failure in Ray's error text; for any other error, REPLICA_DIED with Ray's first line."""
    for line in reversed(text.splitlines()):
        _, found, packed = line.partition(FAILURE_PREFIX)
        if found:
            try:
                return parse(FailedStart, json.JSONDecoder().raw_decode(packed)[0])
            except ValueError:
                continue
    lines = (line.strip() for line in text.splitlines() if line.strip())
    return FailedStart("REPLICA_DIED", next(lines, "Ray gave no reason"))


def keep_failure(actor_id: str, failure: FailedStart) -> None:
    """Keep the failure of an actor that will end without raising, in Ray's key-value table."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(_key(actor_id), encode_failure(failure).encode(), overwrite=True, namespace=KV_NAMESPACE)


def kept_failure(actor_id: str) -> Optional[FailedStart]:
    """Return the failure an actor has kept, or None."""
    from ray.experimental.internal_kv import _internal_kv_get

    kept = _internal_kv_get(_key(actor_id), namespace=KV_NAMESPACE)
    return decode_failure(kept.decode(errors="replace")) if kept else None


def _key(actor_id: str) -> bytes:
    return KEPT_FAILURE + actor_id.encode()
