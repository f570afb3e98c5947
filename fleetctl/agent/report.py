"""What a replica reports of itself: its name, its repr once it is up, and why it has failed. No secrets.

Ray keeps the text of a constructor's error, or of the SystemExit with which a worker ends itself, as the actor's cause
of death. A gang that must end itself by force can raise neither; it keeps its reason in Ray's key-value table, by its
actor id.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import threading
import time
from datetime import datetime, timezone
from typing import Any, Callable, Dict, NoReturn, Optional, Sequence, Tuple

from .messages import FailedStart, Mark, Member, Place, Replica
from .ports import host_port
from .wire import document_of, parse

MARKED = (
    "FLEETCTL_MODEL", "FLEETCTL_REPLICA_ID", "FLEETCTL_GROUP", "FLEETCTL_COPY", "FLEETCTL_RANK", "FLEETCTL_GROUP_SIZE",
    "FLEETCTL_LEADER_ADDRESS", "FLEETCTL_LEADER_PORT", "FLEETCTL_PORT",
)
"""All of these are in the environment of an engine and of every process it starts, also of one from an earlier release:
a process with all of them belongs to an engine. No variable is added here."""
SHARE = 10_000
NAME_LENGTH, GROUP_SHOWN = 63, 20


def utc_now() -> str:
    """Return the time in UTC, RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def moment(seconds: float) -> str:
    """Return a time since the epoch in UTC, RFC 3339 with milliseconds, so that texts sort by time."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def compact(value: Any) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def actor_name(model: str, replica_id: int) -> str:
    """Return the unique name of a replica's actor; Ray lets it exist only once."""
    return f"ModelActor:{model}:{replica_id}"


def warm_name(model: str, replica_id: int) -> str:
    """Return the name of the actor that keeps the weights of a WARM replica in memory."""
    return f"WarmReplica:{model}:{replica_id}"


def evict_command(replica: str) -> str:
    """Return the command that ends a replica by its name, MODEL/ID; after `--` a name is never read as a flag."""
    return f"fleetctl evict {'-- ' if replica.startswith('-') else ''}{shlex.quote(replica)}"


def place_of(member: Member) -> Place:
    """Return the place of a member as planned: its claim, seat and node."""
    return Place(member.slot, member.gpus, member.vram, member.cpus, member.memory, member.group, member.copy,
                 member.role, member.rank, member.node_id)


def describe(
    replica: Replica, places: Sequence[Place], ready_at: str, *, failed: Optional[FailedStart] = None,
    uncounted: Optional[int] = None, started_in: Optional[float] = None,
) -> str:
    """Return the `repr` of a replica that is up: since when, and each member's claim, node, cards and port.

    `failed` = the failure of a replica that is about to end itself by force; Ray asks for the repr just before that.
    `uncounted` and `started_in` as in Mark.
    """
    return compact(document_of(Mark(
        fleet=replica.fleet, namespace=replica.namespace, spec_hash=replica.spec_hash, variant=replica.variant,
        engine_hash=replica.engine_hash,
        ready_at=ready_at, restart_max=replica.lifecycle.restart_max, restarts_uncounted=uncounted,
        started_in=started_in, earlier_tries=replica.earlier_tries or None, failed=failed, members=places)))


def read_mark(text: str) -> Optional[Mark]:
    """Return what a repr says; None if it is empty, or not one that this release reads."""
    try:
        return parse(Mark, json.loads(text))
    except (ValueError, RecursionError):
        return None


def injected_variables(replica: Replica, member: Member, place: Place, leader: Tuple[str, int]) -> Dict[str, str]:
    """Return the FLEETCTL_ variables that every member has: the MARKED ones first.

    `place` has the member's address and port, `leader` the address of rank 0 and its port for the gang.
    """
    gang = [other for other in replica.members if (other.group, other.copy) == (member.group, member.copy)]
    values = (replica.model, replica.replica_id, member.group, member.copy, member.rank, len(gang), *leader, place.port)
    first = sum(_ranks_in(other) for other in gang if other.rank < member.rank)
    return {
        **dict(zip(MARKED, map(str, values))),
        "FLEETCTL_NAME": name_of(replica, member),
        "FLEETCTL_HOST": place.ip,
        "FLEETCTL_ENDPOINT": host_port(place.ip, place.port or 0),
        "FLEETCTL_NODE": member.node,
        "FLEETCTL_LEADER_ENDPOINT": host_port(*leader),
        "FLEETCTL_RANKS": ",".join(map(str, range(first, first + _ranks_in(member)))),
        **({"FLEETCTL_VARIANT": replica.variant} if replica.variant else {}),
    }


def _ranks_in(member: Member) -> int:
    """Return how many ranks a member has for an engine that counts one for each card; the planner counts the same."""
    return max(1, member.gpus // SHARE)


def name_of(replica: Replica, member: Member) -> str:
    """Return a name for the member's engine: a DNS label, unique in the cluster, and the same after a restart.

    Its last part is a hash: different model keys may have the same letters and digits.
    """
    key = compact([replica.namespace, replica.model, replica.replica_id, member.group, member.copy, member.rank])
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    seat = f"-{replica.replica_id}-{member.group[:GROUP_SHOWN]}-{member.copy}-{member.rank}-{digest}"
    model = re.sub("[^a-z0-9]+", "-", replica.model.lower()).strip("-")
    return (model[:NAME_LENGTH - len(seat)].rstrip("-") + seat).lstrip("-")


FAILURE_PREFIX = "FLEETCTL_FAILED "
KEPT_FAILURE = b"failure:"
KV_NAMESPACE = b"fleetctl"
CARD_FAILURES = ("CARD_LOST", "CARD_FAULTY")
"""Codes of a card that has failed itself, whatever runs on it."""

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
