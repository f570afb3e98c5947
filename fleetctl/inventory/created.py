"""What became of the replicas that one run has created, from Ray's actors, live and dead: each names its run's process.

Unlike the inventory it tells runs apart that have created replicas of the same id, one after the other.
"""

from __future__ import annotations

from typing import NamedTuple

from fleetctl.documents.events import Outcome
from fleetctl.documents.inventory import LIVE_STATES
from fleetctl.errors import InventoryError
from fleetctl.inventory.actors import Row, count_of, death_messages, list_rows, packed_failure
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.failures import failed_itself
from fleetctl.inventory.json_values import object_of, text_of, texts_of
from fleetctl.inventory.marks import parse_actor_name, read_marks


class Became(NamedTuple):
    """What became of the start of a replica. `ready_at` = when it was ready, of one that was never restarted."""

    outcome: Outcome
    code: str | None = None
    message: str = ""
    ready_at: str | None = None


def list_created(client: DashboardClient, driver_id: str) -> dict[tuple[str, int], Became]:
    """Return what became of the replicas that a run has created, by model and id, as far as Ray remembers them.

    `driver_id` = the run's process. Raises InventoryError also if the list is incomplete.
    """
    listing = list_rows(client, "actors", _became, filters=[("job_id", "=", driver_id)])
    if listing.losses:
        raise InventoryError("; ".join(listing.losses))
    tried_again = {actor_id for _, _, _, tries in listing.rows for actor_id in tries}
    return {key: became for key, actor_id, became, _ in listing.rows if actor_id not in tried_again}


def _became(row: Row) -> tuple[tuple[str, int], str | None, Became, set[str]] | None:
    """Return the replica of an actor's row, the actor, what became of it, and the actors of its earlier tries."""
    name, cause = parse_actor_name(str(row.get("name"))), object_of(row.get("death_cause"))
    if name is None or name.replica_id is None or name.level != "HOT":
        return None
    marks, texts = read_marks(text_of(row.get("repr_name")) or ""), list(death_messages(cause))
    lives = row.get("state") in LIVE_STATES
    record = packed_failure(texts) or marks.failed
    if marks.ready_at:
        ready_at = None if count_of(row.get("num_restarts")) else marks.ready_at
        now = "" if row.get("state") == "ALIVE" else "it is restarting" if lives else "it has ended since"
        became = Became("ready", message=now, ready_at=ready_at)
    elif lives:
        became = Became("starting")
    elif record or failed_itself(cause):
        became = Became("failed", text_of(record.get("code")) or "REPLICA_DIED", text_of(record.get("message")) or next(
            (line for text in texts for line in text.splitlines()), ""))
    else:
        became = Became("gone", message="it was ended before it was ready")
    tries = {*texts_of(record.get("earlierTries")), *marks.earlier_tries}
    return (name.model, name.replica_id), text_of(row.get("actor_id")), became, tries
