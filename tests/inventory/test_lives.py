"""The log of one replica: names are reused, and events of an earlier replica of the same name do not count."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.documents.inventory import Replica
from fleetctl.inventory.lives import NO_TIMES, _fields_from_log

LOG = """\
fleetctl: starting main/0 rank 0 at 2026-03-04T09:00:00Z
fleetctl: ended at 2026-03-04T10:00:00Z: of an older one
fleetctl: starting main/0 rank 0 at 2026-03-04T11:00:00Z
fleetctl: ended at 2026-03-04T12:00:00Z: signal 9
"""
OLDER_ALONE = LOG[:LOG.index("fleetctl: starting main/0 rank 0 at 2026-03-04T11")]
UP = "2026-03-04T11:30:00Z", "2026-03-04T11:40:00Z"
CREATED = "2026-03-04T10:59:00Z"
ENDED = {"since": "2026-03-04T12:00:00Z", "error": "signal 9"}


@pytest.mark.parametrize(("state", "since", "up", "log", "news"), [
    ("RESTARTING", None, UP, LOG, ENDED),
    ("RESTARTING", CREATED, NO_TIMES, LOG, ENDED),
    ("RESTARTING", CREATED, NO_TIMES, OLDER_ALONE, {}),
    ("RESTARTING", None, NO_TIMES, LOG, {}),
    ("ALIVE", None, UP, LOG, {"error": "signal 9"}),
    ("ALIVE", None, NO_TIMES, LOG, {}),
    ("ALIVE", None, UP, OLDER_ALONE, {}),
], ids=["ended", "was never ready", "has not ended", "is not in the log", "is ready again", "start unknown",
        "an earlier replica ended"])
def test_only_events_after_the_start_of_this_replica_count(
    state: Any, since: str | None, up: tuple[str, str], log: str, news: dict[str, str]
) -> None:
    replica = Replica(model="m", replica_id=0, state=state, since=since, restarts=1)
    assert dict(_fields_from_log(replica, log, up)) == news
