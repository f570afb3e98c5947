"""Live actors from the state API: one query per live state, in an order in which no actor can slip through."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fleetctl.documents.inventory import LIVE_STATES
from fleetctl.inventory.claims import Claim, read_claim, read_claim_in_group
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.state_api import Listing, Row, list_rows

QUERY_ORDER = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING", "ALIVE", "RESTARTING")
"""States in the order actors pass through them, one query after the other: an actor that moves on between two queries
is met again by a later one. RESTARTING comes twice, as an actor may fall from ALIVE back to it."""


@dataclass(frozen=True, slots=True)
class LiveActor:
    """One actor that is not dead. `claim` is what it takes from its node, or from its placement group if it has one.

    `node_id` is None until it runs; while RESTARTING it is the node it ran on. `environment` is that of its
    runtime environment. `repr_name` is what its `__repr__` last said, possibly before a restart.
    """

    actor_id: str
    name: str
    namespace: str
    state: str
    node_id: str | None
    placement_group_id: str | None
    claim: Claim
    environment: Mapping[str, str]
    repr_name: str
    restarts: int
    last_words: str | None


def list_live_actors(client: DashboardClient) -> Listing:
    """Return the rows of all live actors, each once, as last seen; raises InventoryError when a query fails.

    Detail is needed: without it there is no runtime environment, claim, placement group or repr.
    """
    rows: dict[str, Row] = {}
    problems: list[str] = []
    for state in QUERY_ORDER:
        listing = list_rows(client, "actors", where=("state", "=", state))
        rows |= {str(row.get("actor_id")): row for row in listing.rows}
        problems += [f"{problem} ({state})" for problem in listing.problems]
    return Listing(tuple(rows[actor_id] for actor_id in sorted(rows)), tuple(dict.fromkeys(problems)))


def read_actor(row: Row) -> LiveActor | None:
    """Return the actor of one row, or None when it is not live or not an actor's row."""
    state = str(row.get("state"))
    if state not in LIVE_STATES or not row.get("actor_id"):
        return None
    group = _text(row.get("placement_group_id")) or None
    resources = row.get("required_resources")
    return LiveActor(
        actor_id=str(row["actor_id"]),
        name=_text(row.get("name")),
        namespace=_text(row.get("ray_namespace")),
        state=state,
        node_id=_text(row.get("node_id")) or None,
        placement_group_id=group,
        claim=read_claim_in_group(resources) if group else read_claim(resources),
        environment=_environment(row.get("serialized_runtime_env")),
        repr_name=_text(row.get("repr_name")),
        restarts=_whole(row.get("num_restarts")),
        last_words=_last_words(row.get("death_cause")),
    )


def _environment(serialized: object) -> Mapping[str, str]:
    """Return `env_vars` of a serialized runtime environment; empty when there is none or it cannot be read."""
    try:
        parsed = json.loads(serialized) if isinstance(serialized, str) and serialized else {}
    except (ValueError, RecursionError):
        return {}
    variables = parsed.get("env_vars") if isinstance(parsed, dict) else None
    if not isinstance(variables, dict):
        return {}
    return {name: value for name, value in variables.items() if isinstance(value, str)}


def _last_words(cause: object) -> str | None:
    """Return the last line of the innermost message in Ray's death cause, a mapping one level deep by kind of death."""
    lines = [line.strip() for text in _messages(cause) for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None


def _messages(cause: object) -> Iterator[str]:
    if not isinstance(cause, dict):
        return
    for key, value in sorted(cause.items()):
        if key in ("error_message", "formatted_exception_string") and isinstance(value, str):
            yield value
        else:
            yield from _messages(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int:
    """Read a count; Ray gives 64-bit integers as text."""
    return int(value) if isinstance(value, (int, str)) and str(value).isdecimal() else 0
