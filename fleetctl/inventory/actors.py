"""Live actors from the state API: one query per live state, in an order that misses no actor.

Ray cuts each answer at 10,000 rows. The missing replicas are then read from the dashboard's own list of actors, which
has no limit but fewer fields.

The lists of Ray's state API are requested with explicit limits and always checked for completeness.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fleetctl.documents.inventory import LAST_OUTPUT, LIVE_STATES
from fleetctl.errors import InventoryError
from fleetctl.inventory.claims import Claim, read_claim, read_claim_in_group
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.json_values import object_of, text_of, whole_of, without_half_pairs
from fleetctl.inventory.marks import parse_actor_name

LIMIT = 10_000
"""The most rows in one answer of Ray; without a limit it gives 100."""

Row = Mapping[str, Any]
Read = TypeVar("Read")
QUERY_ORDER = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING", "ALIVE", "RESTARTING")
"""States in the order in which actors pass through them: a later query finds an actor that moves on between queries.
RESTARTING comes twice, because an ALIVE actor may return to it."""
LOGICAL_PATH, LOGICAL_KEYS = "/logical/actors", ("data", "actors")
NO_NODE = "f" * 56
"""The node id of an actor without a node, in the dashboard's own list."""
MEMBER_CLASS = "GangMember"
"""The class of the actors that are members of our gangs; see agent/gang.py."""
MEMBER_CLASSES = frozenset({MEMBER_CLASS, "WarmHolder"})
"""These, and the actors that hold the weights of a WARM gang on its further nodes; see agent/warm.py."""
PREFIX = "FLEETCTL_FAILED "
"""The marker before a failure in Ray's text; see agent/report.py."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[Read]):
    """The rows of one list, parsed; `unread` = the number of rows that could not be read.

    `cut` = Ray left rows out because there are too many; `problems` = other reasons why rows may be missing.
    """

    rows: tuple[Read, ...] = ()
    unread: int = 0
    problems: tuple[str, ...] = ()
    cut: str | None = None

    @property
    def losses(self) -> list[str]:
        """Why the list may lack rows."""
        return [*([self.cut] if self.cut else []), *self.problems]


def list_rows(client: DashboardClient, what: str, read: Callable[[Row], Read | None], *,
              filters: Sequence[tuple[str, str, str]] = ()) -> Listing[Read]:
    """Return the result of `read` for each row of /api/v0/<what>; `filters` = (column, operator, value), all required.

    Ray applies `state = X` at the source, so dead actors cost nothing; it applies other filters after reading. Rows are
    read as they arrive. Raises InventoryError when the answer has no list of rows.
    """
    path = f"/api/v0/{what}"
    params: dict[str, str | Sequence[str]] = {"limit": str(LIMIT), "detail": "true"}
    if filters:
        columns = zip(*filters, strict=True)
        params |= dict(zip(("filter_keys", "filter_predicates", "filter_values"), columns, strict=True))

    def read_row(_: str, row: object) -> Read | None:
        if not isinstance(row, dict):
            raise InventoryError(f"{path} answered without a list of rows")
        return read(row)

    rows, listing = client.read_entries(path, ("data", "result", "result"), params, read_row)
    usable = tuple(row for row in rows if row is not None)
    return Listing(usable, len(rows) - len(usable), tuple(_problems(path, listing)), _cut(path, listing, len(rows)))


def _cut(path: str, listing: Mapping[str, Any], count: int) -> str | None:
    """Report rows that were left out, at the source or by the limit of the answer."""
    total, kept, matching = (whole_of(listing.get(key)) for key in ("total", "num_after_truncation", "num_filtered"))
    if total is not None and kept is not None and total > kept:
        return f"{path} was cut: {kept} of {total} rows"
    if matching is not None and matching > count:
        return f"{path} was cut: {count} of {matching} rows"
    return None


def _problems(path: str, listing: Mapping[str, Any]) -> list[str]:
    """Report other reasons why the list is incomplete: a source that failed, or a warning."""
    partial, warnings = listing.get("partial_failure_warning"), listing.get("warnings") or []
    return [*([f"{path} is partial: {partial}"] if partial else []),
            *(f"{path}: {warning}" for warning in (warnings if isinstance(warnings, list) else [warnings]))]


@dataclass(frozen=True, slots=True)
class LiveActor:
    """One live actor. `claim` is what it takes from its node, or from its placement group if it has one.

    `node_id` is None until it runs; while RESTARTING it is the node it ran on. `repr_name` is its last `__repr__`,
    possibly from before a restart; empty until its constructor has returned. `job_id` is the job that created it.
    `namespace` None = unknown, because the dashboard's own list lacks it. `error` = why it last ended, in one line.
    """

    actor_id: str
    name: str
    namespace: str | None
    state: str
    class_name: str
    job_id: str
    node_id: str | None
    placement_group_id: str | None
    claim: Claim
    repr_name: str
    restarts: int
    error: str | None


def list_live_actors(client: DashboardClient) -> Listing[LiveActor]:
    """Return all live actors, each once, as last seen; raises InventoryError when a query fails.

    If the listing is `cut`, only actors that are not replicas may be missing. The queries ask for details: without
    them Ray returns no claim, placement group or repr.
    """
    by_id: dict[str, LiveActor] = {}
    problems: list[str] = []
    cut: list[str] = []
    for state in QUERY_ORDER:
        listing = list_rows(client, "actors", read_actor, filters=[("state", "=", state)])
        by_id |= {actor.actor_id: actor for actor in listing.rows}
        problems += [f"{problem} ({state})" for problem in listing.problems]
        problems += [f"{listing.unread} rows of actors cannot be read ({state})"] if listing.unread else []
        cut += [f"{listing.cut} ({state})"] if listing.cut else []
    if cut:
        by_id |= {actor.actor_id: actor for actor in _missing_replicas(client, by_id)}
    return Listing(tuple(by_id[actor_id] for actor_id in sorted(by_id)), problems=tuple(dict.fromkeys(problems)),
                   cut="; ".join(dict.fromkeys(cut)) or None)


def _missing_replicas(client: DashboardClient, listed: Mapping[str, LiveActor]) -> list[LiveActor]:
    """Return the live replicas and their members that are not in `known`; raises InventoryError."""

    def read(actor_id: str, entry: object) -> LiveActor | None:
        row = _row_of(actor_id, object_of(entry))
        ours = row["class_name"] in MEMBER_CLASSES or parse_actor_name(str(row["name"])) is not None
        return read_actor(row) if ours and actor_id not in listed else None

    actors, _ = client.read_entries(LOGICAL_PATH, LOGICAL_KEYS, {"nocache": "1"}, read, opening="{", large=True)
    return [actor for actor in actors if actor is not None]


def _row_of(actor_id: str, entry: Mapping[str, object]) -> Row:
    """Return an entry of the dashboard's list as a row of the state API, without a namespace."""
    node_id = object_of(entry.get("address")).get("nodeId")
    return {
        "actor_id": actor_id, "name": entry.get("name"), "state": entry.get("state"), "job_id": entry.get("jobId"),
        "class_name": entry.get("actorClass"), "repr_name": entry.get("reprName"),
        "num_restarts": entry.get("numRestarts"), "node_id": None if node_id == NO_NODE else node_id or None,
        "placement_group_id": entry.get("placementGroupId") or None,
        "required_resources": entry.get("requiredResources"),
    }


def read_actor(row: Row) -> LiveActor | None:
    """Return the actor of one row, or None if it is not live or the row is not an actor's."""
    state = str(row.get("state"))
    if state not in LIVE_STATES or not row.get("actor_id"):
        return None
    group, namespace = text_of(row.get("placement_group_id")), row.get("ray_namespace")
    resources = row.get("required_resources")
    return LiveActor(
        actor_id=str(row["actor_id"]),
        name=text_of(row.get("name")) or "",
        namespace=None if namespace is None else str(namespace),
        state=state,
        class_name=text_of(row.get("class_name")) or "",
        job_id=text_of(row.get("job_id")) or "",
        node_id=text_of(row.get("node_id")),
        placement_group_id=group,
        claim=read_claim_in_group(resources) if group else read_claim(resources),
        repr_name=text_of(row.get("repr_name")) or "",
        restarts=integer_of(row.get("num_restarts")),
        error=death_reason(row.get("death_cause")))


def integer_of(value: object) -> int:
    """Return a count; Ray writes 64-bit integers as text."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return int(text) if isinstance(text, str) and re.fullmatch("[0-9]{1,18}", text) else 0


def death_messages(cause: object) -> Iterator[str]:
    """Yield the messages in Ray's death cause, a mapping by kind of death."""
    for key, value in sorted(object_of(cause).items()):
        if key in ("error_message", "formatted_exception_string") and isinstance(value, str):
            yield value
        else:
            yield from death_messages(value)


def packed_failure(texts: Sequence[str]) -> Mapping[str, Any]:
    """Return the failure that the agent has packed into a cause of death; empty if there is none."""
    for line in (line for text in reversed(texts) for line in reversed(text.splitlines())):
        _, prefix, packed = line.partition(PREFIX)
        if prefix:
            try:
                failure, _ = json.JSONDecoder().raw_decode(without_half_pairs(packed))
            except (ValueError, RecursionError):
                continue
            if isinstance(failure, dict) and text_of(failure.get("code")):
                return failure
    return {}


def death_reason(cause: object) -> str | None:
    """Return in one line why an actor ended: the agent's reason, else the last line of Ray's innermost message."""
    texts = list(death_messages(cause))
    if message := text_of(packed_failure(texts).get("message")):
        return message.partition(LAST_OUTPUT)[0].partition("\n")[0]
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None
