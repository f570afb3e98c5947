"""Since when replicas are up or down, and why: Ray's times of their actors, and our own lines in their engines' logs.

Ray keeps when an actor was last up, but neither when nor why it ended: the agent writes that to the engine's log. All
of this is for people. What cannot be read is left out, and nothing is planned on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from fleetctl.documents.inventory import Replica, was_restarted_recently
from fleetctl.errors import InventoryError
from fleetctl.inventory.actors import LOGICAL_KEYS, LOGICAL_PATH
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.engine_log import member_log, read_log
from fleetctl.inventory.json_values import moment_of_ms, object_of

AT_A_TIME = 200
"""Actors in one request: a longer address than 8 KB is refused."""
READERS, LOGS_READ, LINES = 8, 50, 1000

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
_STAMP = r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z#\d+ )?"
_LINE = re.compile(rf"^{_STAMP}fleetctl: (?:starting .* at (?P<began>{_TIME})|"
                   rf"ended at (?P<ended>{_TIME}): (?P<why>.*))$", re.MULTILINE | re.ASCII)
NO_TIMES = ("", "")

Times = tuple[str, str]
"""When an actor first and last became ready, as `Moment`s of UTC without decimals, which sort; empty = unknown."""


def with_lives(
    client: DashboardClient, replicas: Sequence[Replica], namespace: str, observed_at: str, *, all_of_them: bool
) -> tuple[list[Replica], list[str]]:
    """Return the replicas with `since`, and the reason of a latest end as `error`; and why some could not be read.

    Asks only about those that Ray has restarted, or about `all_of_them`. At most LOGS_READ logs are read.
    """
    asked = [one for one in replicas if one.actor_id and (all_of_them or one.restarts or one.state == "RESTARTING")]
    if not asked:
        return list(replicas), []
    parts = [asked[at:at + AT_A_TIME] for at in range(0, len(asked), AT_A_TIME)]
    problems: list[str] = []
    with ThreadPoolExecutor(READERS, thread_name_prefix="lives") as pool:
        try:
            up = {name: at for found in pool.map(lambda part: _last_up(client, part), parts) for name, at in found}
        except InventoryError as error:
            up, problems = {}, [f"since when replicas are up could not be read: {error.message}"]
        known = {one.actor_id: _with_time(one, up.get(one.actor_id or "", NO_TIMES)) for one in asked}
        read = sorted((one for one in known.values() if _has_news(one, observed_at, all_of_them=all_of_them)),
                      key=lambda one: (one.state != "RESTARTING", one.state == "ALIVE", one.model))[:LOGS_READ]
        for one in pool.map(lambda one: _with_log(client, one, namespace, up.get(one.actor_id or "", NO_TIMES)), read):
            known[one.actor_id] = one
    return [known.get(one.actor_id, one) for one in replicas], problems


def _last_up(client: DashboardClient, replicas: Sequence[Replica]) -> list[tuple[str, Times]]:
    """Return when these actors became ready, by actor id."""
    def read(actor_id: str, entry: object) -> tuple[str, Times]:
        return actor_id, (moment_of_ms(object_of(entry).get("startTime")) or "",
                          moment_of_ms(object_of(entry).get("timestamp")) or "")

    query = {"ids": ",".join(one.actor_id or "" for one in replicas)}  # what is cached is cached by address
    return client.read_entries(LOGICAL_PATH, LOGICAL_KEYS, {"nocache": "1", **query}, read, opening="{")[0]


def _with_time(replica: Replica, up: Times) -> Replica:
    is_up = replica.state == "ALIVE" and replica.constructed
    return replica.model_copy(update={"since": up[1]}) if is_up and up[1] else replica


def _has_news(replica: Replica, observed_at: str, *, all_of_them: bool) -> bool:
    """Return whether the log of a replica of ours may say what Ray does not."""
    if replica.level != "HOT" or replica.fleet is None or not replica.members or not replica.members[0].node_id:
        return False
    if replica.state == "ALIVE":
        return bool(replica.restarts) and (all_of_them or was_restarted_recently(replica, observed_at))
    return all_of_them or replica.state == "RESTARTING"


def _with_log(client: DashboardClient, replica: Replica, namespace: str, up: Times) -> Replica:
    """Return the replica with what the log of its first member says of it."""
    log = read_log(client, member_log(namespace, replica, replica.members[0]), LINES)
    return replica.model_copy(update=_news(replica, (log.data or b"").decode(errors="replace"), up))


def _news(replica: Replica, log: str, up: Times) -> Mapping[str, object]:
    """Return what to update. A name is used again: what is older than this replica is no news of it.

    One whose worker died before it was ready was never up, and is as old as its creation.
    """
    lines = list(_LINE.finditer(log))
    begun = up[replica.state == "RESTARTING"] or ((replica.since or "") if replica.state == "RESTARTING" else "")
    ends = [line for line in lines if line["ended"] and line["ended"] >= begun > ""]
    if replica.state == "ALIVE":
        return {"error": ends[-1]["why"]} if ends else {}
    if replica.state == "RESTARTING":
        return {"since": ends[0]["ended"], "error": ends[-1]["why"]} if ends else {}
    begins = [line["began"] for line in lines if line["began"] and replica.since and line["began"] >= replica.since]
    return {"since": begins[-1]} if begins else {}
