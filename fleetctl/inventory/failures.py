"""The replicas that failed, from Ray's dead actors: when, where, with which spec, and why.

A replica says in its cause of death what the agent knows of it; one that Ray or the kernel ended says less. Evicted
ones, and those whose node has gone, are no failures. What an older agent has written is read as far as it goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetctl.documents.inventory import Failure
from fleetctl.errors import InventoryError
from fleetctl.inventory.actors import count_of, death_messages, packed_failure
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.json_values import moment_of, object_of, text_of, texts_of
from fleetctl.inventory.marks import parse_actor_name, read_marks
from fleetctl.inventory.state_api import Row, list_rows

CLASSES = ("ModelActor", "GangCoordinator")
"""The classes of our replicas; see agent/create.py."""
BY_ITSELF = ("creation_task_failure_context", "oom_context")
"""The kinds of death in which the actor ended by itself; a worker that died is the third, see `_failed`."""


def list_failures(client: DashboardClient, namespace: str) -> tuple[Failure, ...]:
    """Return the failures that Ray remembers in `namespace`, in order of their actors' ids.

    What was created again on other cards has not failed by that: what became of the last try counts. Raises
    InventoryError also where the list is not whole: then it is not known what failed in a row.
    """
    found, tried_again = list[Failure](), set[str]()
    for name in CLASSES:
        listing = list_rows(client, "actors", lambda row: _read(row, namespace, tried_again),
                            where=[("state", "=", "DEAD"), ("class_name", "=", name)])
        if problems := [*([listing.cut] if listing.cut else []), *listing.problems]:
            raise InventoryError("; ".join(problems))
        found += listing.rows
    last = (one for one in found if one.actor_id not in tried_again)
    return tuple(sorted(last, key=lambda one: one.actor_id or ""))


def _read(row: Row, namespace: str, tried_again: set[str]) -> Failure | None:
    """Return the failure in the row of a dead actor; None for one that did not fail, or is not ours.

    The actors of its earlier tries are added to `tried_again`.
    """
    name, cause = parse_actor_name(str(row.get("name"))), object_of(row.get("death_cause"))
    texts = list(death_messages(cause))
    said = packed_failure(texts)
    if name is None or name.replica_id is None or row.get("ray_namespace") != namespace or row.get("state") != "DEAD":
        return None
    marks = read_marks(text_of(row.get("repr_name")) or "")
    said = said or marks.failed
    tried_again |= {*texts_of(said.get("earlierTries")), *marks.earlier_tries}
    if not said and not _failed(cause):
        return None
    node_ids = texts_of(said.get("nodeIds")) or [member.node_id for member in marks.members if member.node_id]
    last = text_of(row.get("node_id"))
    return Failure(
        model=name.model, replica_id=name.replica_id, actor_id=text_of(row.get("actor_id")),
        fleet=text_of(said.get("fleet")) or marks.fleet, spec_hash=text_of(said.get("specHash")) or marks.spec_hash,
        node_ids=list(dict.fromkeys(node_ids or ([last] if last else []))),
        gpu_uuids=texts_of(said.get("gpuUuids")) or [uuid for member in marks.members for uuid in member.gpu_uuids],
        code=text_of(said.get("code")) or "REPLICA_DIED",
        message=text_of(said.get("message")) or next((line for text in texts for line in text.splitlines()), ""),
        at=moment_of(said.get("at")), restarts=count_of(row.get("num_restarts")),
    )


def _failed(cause: Mapping[str, Any]) -> bool:
    """Return whether an actor ended by itself, on a node that stayed."""
    died = object_of(cause.get("actor_died_error_context"))
    return died.get("reason") == "WORKER_DIED" or any(cause.get(kind) for kind in BY_ITSELF)
