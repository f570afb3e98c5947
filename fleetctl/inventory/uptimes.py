"""When replicas came up or went down, and why: Ray's times of their actors, and our own lines in their engines' logs.

Ray keeps the time when an actor was last up or died, but not when or why it ended before a restart: the agent writes
that to the engine's log. Parts that cannot be read are left out. Plans use only the times of deaths, for cooling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fleetctl.documents.base import as_datetime
from fleetctl.documents.inventory import Failure, Replica, is_long, was_restarted_recently
from fleetctl.errors import InventoryError
from fleetctl.inventory.actors import LOGICAL_KEYS, LOGICAL_PATH
from fleetctl.inventory.client import DashboardClient, ask_all
from fleetctl.inventory.engine_log import member_log, read_log
from fleetctl.inventory.json_values import moment_of_ms, object_of
from fleetctl.inventory.marks import Marks

AT_A_TIME = 200
"""Actors per request: addresses over 8 KB are refused."""
LOGS_READ, LINES = 50, 1000
AHEAD_S = 5
"""A node writes when its replicas became ready or failed; its clock may be this much ahead of the cluster's."""

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
_STAMP = r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z#\d+ )?"
_LINE = re.compile(rf"^{_STAMP}fleetctl: (?:starting .* at (?P<began>{_TIME})|"
                   rf"ended at (?P<ended>{_TIME}): (?P<why>.*))$", re.MULTILINE | re.ASCII)
NO_TIMES, NOT_PLANNED = ("", ""), Marks()

Times = tuple[str, str]
"""When an actor first became ready, and when it last did or died: UTC `Moment`s without decimals, "" = unknown."""


def with_uptimes(
    client: DashboardClient, replicas: Sequence[Replica], namespace: str, observed_at: str, *, all_replicas: bool
) -> tuple[list[Replica], list[str]]:
    """Return the replicas with `since` and, as `error`, why they last ended; and the problems of reading these.

    Reads only replicas that Ray has restarted, and those ready after `observed_at`, which get Ray's time, as the clock
    of their node is ahead; or `all_replicas`. At most LOGS_READ logs are read.
    """
    chosen = {replica.actor_id: replica for replica in replicas if replica.actor_id and (
        all_replicas or replica.restarts or replica.state == "RESTARTING" or _is_ahead(replica.ready_at, observed_at))}
    if not chosen:
        return list(replicas), []
    problems: list[str] = []
    try:
        times = _times(client, list(chosen))
    except InventoryError as error:
        times, problems = {}, [f"the times when replicas became ready could not be read: {error.message}"]
    timed = {actor_id: _with_time(replica, times.get(actor_id, NO_TIMES), observed_at)
             for actor_id, replica in chosen.items()}
    need_log = [actor_id for actor_id, replica in timed.items()
                if _needs_log(replica, observed_at, all_replicas=all_replicas)]
    need_log.sort(key=lambda key: (timed[key].state != "RESTARTING", timed[key].state == "ALIVE", timed[key].model))
    with_logs = ask_all(lambda key: _with_log(client, timed[key], namespace, times.get(key, NO_TIMES)),
                        need_log[:LOGS_READ])
    timed |= zip(need_log, with_logs, strict=False)
    return [timed.get(replica.actor_id or "", replica) for replica in replicas], problems


def with_deaths(
    client: DashboardClient, failures: Sequence[Failure], planned: Mapping[str, Marks], now: str
) -> list[Failure]:
    """Return the failures; those without a time get Ray's time, and missing fields from the `planned` marks.

    So do those with a time after `now`, the cluster's, as the clock of their node is ahead: if Ray does not know it,
    they have just failed.
    """
    ahead = {failure.actor_id for failure in failures if _is_ahead(failure.at, now)}
    untimed = [failure.actor_id for failure in failures
               if failure.actor_id and (failure.at is None or failure.actor_id in ahead)]
    if not untimed:
        return list(failures)
    try:
        died = _times(client, untimed)
    except InventoryError:
        died = {}
    with_times = list[Failure]()
    for failure in failures:
        at, plan = died.get(failure.actor_id or "", NO_TIMES)[1], planned.get(failure.actor_id or "", NOT_PLANNED)
        is_ahead = failure.actor_id in ahead
        with_times.append(failure if failure.at and not is_ahead else failure.model_copy(update={
            "at": at or (now if is_ahead else None), "fleet": failure.fleet or plan.fleet or None,
            "spec_hash": failure.spec_hash or plan.spec_hash, "node_ids": failure.node_ids or plan.node_ids}))
    return with_times


def _times(client: DashboardClient, actor_ids: Sequence[str]) -> dict[str, Times]:
    """Return the times of those actors that Ray knows; raises InventoryError."""
    parts = [actor_ids[at:at + AT_A_TIME] for at in range(0, len(actor_ids), AT_A_TIME)]
    return {name: at for part_times in ask_all(lambda part: _times_of(client, part), parts) for name, at in part_times}


def _times_of(client: DashboardClient, actor_ids: Sequence[str]) -> list[tuple[str, Times]]:
    def read(actor_id: str, entry: object) -> tuple[str, Times]:
        return actor_id, (moment_of_ms(object_of(entry).get("startTime")) or "",
                          moment_of_ms(object_of(entry).get("timestamp")) or "")

    query = {"nocache": "1", "ids": ",".join(actor_ids)}  # the dashboard caches by address
    return client.read_entries(LOGICAL_PATH, LOGICAL_KEYS, query, read, opening="{")[0]


def _with_time(replica: Replica, up: Times, now: str) -> Replica:
    update: dict[str, object] = {"ready_at": up[0] or now} if _is_ahead(replica.ready_at, now) else {}
    if replica.state == "ALIVE" and replica.constructed and up[1]:
        update["since"] = up[1]
        if replica.restarts_used is not None and is_long(up[1], now):
            update["restarts_used"] = 0
    return replica.model_copy(update=update)


def _is_ahead(at: str | None, now: str) -> bool:
    return at is not None and (as_datetime(at) - as_datetime(now)).total_seconds() > AHEAD_S


def _needs_log(replica: Replica, observed_at: str, *, all_replicas: bool) -> bool:
    """Return whether the log of one of our replicas may have times that Ray does not keep."""
    if replica.level != "HOT" or replica.fleet is None or not replica.members or not replica.members[0].node_id:
        return False
    if replica.state == "ALIVE":
        return bool(replica.restarts) and (all_replicas or was_restarted_recently(replica, observed_at))
    return all_replicas or replica.state == "RESTARTING"


def _with_log(client: DashboardClient, replica: Replica, namespace: str, up: Times) -> Replica:
    """Return the replica with the times and reasons in the log of its first member."""
    log = read_log(client, member_log(namespace, replica, replica.members[0]), LINES)
    return replica.model_copy(update=_fields_from_log(replica, (log.data or b"").decode(errors="replace"), up))


def _fields_from_log(replica: Replica, log: str, up: Times) -> Mapping[str, object]:
    """Return the fields to update. Names are reused, so lines older than this replica are ignored.

    A replica whose worker died before it was ready was never up: it begins at its creation.
    """
    lines = list(_LINE.finditer(log))
    first_ready, last_up = up
    begun = (last_up or replica.since or "") if replica.state == "RESTARTING" else first_ready
    ends = [line for line in lines if line["ended"] and line["ended"] >= begun > ""]
    if replica.state == "ALIVE":
        return {"error": ends[-1]["why"]} if ends else {}
    if replica.state == "RESTARTING":
        if not ends:
            return {}
        was_healthy = replica.restarts_used is not None and last_up and is_long(last_up, ends[0]["ended"])
        used = {"restarts_used": len(ends)} if was_healthy else {}
        return {"since": ends[0]["ended"], "error": ends[-1]["why"], **used}
    begins = [line["began"] for line in lines if line["began"] and replica.since and line["began"] >= replica.since]
    return {"since": begins[-1]} if begins else {}
