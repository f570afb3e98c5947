"""Read a live cluster from its Ray dashboard: all GETs at once, and an honest word about what did not come through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fleetctl.documents.inventory import ClusterIdentity, Inventory
from fleetctl.errors import ClusterRefused, ClusterUnreachable, InventoryError
from fleetctl.inventory.actors import LiveActor, list_live_actors, read_actor
from fleetctl.inventory.assemble import Parts, build_nodes, consistency_warnings, contradictions
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.nodes import FoundNode, read_node
from fleetctl.inventory.placement_groups import list_placement_groups, read_placement_group
from fleetctl.inventory.replicas import find_replicas
from fleetctl.inventory.state_api import NOTHING, Listing, list_rows

SUMMARY_PATH = "/nodes"
SUMMARY_PARAMS = {"view": "summary", "nocache": "1"}
"""Without `nocache`, Ray answers with what it last served, however old, and only then refreshes its cache."""

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Answers:
    """What came back, part by part; `failures` collects why a part, or some of it, did not."""

    nodes: Listing = NOTHING
    actors: Listing = NOTHING
    groups: Listing = NOTHING
    summary: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    version: Mapping[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def read_dashboard(client: DashboardClient, *, observed_at: str, namespace: str = "fleet") -> Inventory:
    """Return the inventory of the cluster behind `client`; `observed_at` is now, RFC 3339 in UTC.

    Whatever part fails, is refused or is cut short makes `complete` false and is named in `warnings`. Raises
    ClusterUnreachable or ClusterRefused when the nodes could not even be asked for.
    """
    answers = _ask(client)
    actors = [actor for row in answers.actors.rows if (actor := read_actor(row)) is not None]
    nodes = [node for row in answers.nodes.rows
             if (node := read_node(row, _raylet(answers.summary.get(str(row.get("node_id")), {})))) is not None]
    groups = [group for row in answers.groups.rows if (group := read_placement_group(row)) is not None]
    parts = Parts(nodes, actors, groups, find_replicas(actors, namespace), answers.summary)
    failures = [*answers.failures, *_unusable(answers, nodes, actors), *_hidden_marks(parts), *contradictions(parts)]
    return Inventory(
        observed_at=observed_at,
        source=client.base_url,
        complete=not failures,
        warnings=[*failures, *consistency_warnings(parts)],
        cluster=ClusterIdentity(address=client.base_url, ray_version=_text(answers.version.get("ray_version")),
                                session_id=_text(answers.version.get("session_name"))),
        nodes=build_nodes(parts),
        replicas=[found.replica for found in parts.replicas],
    )


def _ask(client: DashboardClient) -> _Answers:
    """Send all requests at once and wait for all of them; a failed part stays empty and is named."""
    answers = _Answers()
    with ThreadPoolExecutor(max_workers=5, thread_name_prefix="inventory") as pool:
        nodes = pool.submit(list_rows, client, "nodes")
        actors = pool.submit(list_live_actors, client)
        groups = pool.submit(list_placement_groups, client)
        summary = pool.submit(_read_summary, client)
        version = pool.submit(_read_version, client)
    if isinstance(error := nodes.exception(), (ClusterUnreachable, ClusterRefused)):
        raise error
    answers.nodes = _settle("the nodes", nodes, NOTHING, answers.failures)
    answers.actors = _settle("the actors", actors, NOTHING, answers.failures)
    answers.groups = _settle("the placement groups", groups, NOTHING, answers.failures)
    answers.summary = _settle("the cards", summary, {}, answers.failures)
    answers.version = _settle("the cluster's version and session", version, {}, answers.failures)
    for listing in (answers.nodes, answers.actors, answers.groups):
        answers.failures.extend(listing.problems)
    return answers


def _settle(what: str, pending: Future[Answer], empty: Answer, failures: list[str]) -> Answer:
    try:
        return pending.result()
    except InventoryError as error:
        failures.append(f"{what} could not be read: {error.message}")
        return empty


def _read_summary(client: DashboardClient) -> Mapping[str, Mapping[str, Any]]:
    """Return node id -> its entry in the dashboard's node summary."""
    body = client.get_json(SUMMARY_PATH, SUMMARY_PARAMS)
    data = body.get("data") if isinstance(body, dict) and body.get("result") is not False else None
    entries = data.get("summary") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise InventoryError(f"{SUMMARY_PATH}?view=summary answered without a list of nodes")
    named = [(_raylet(entry).get("nodeId"), entry) for entry in entries if isinstance(entry, dict)]
    return {node_id: entry for node_id, entry in named if isinstance(node_id, str)}


def _read_version(client: DashboardClient) -> Mapping[str, Any]:
    body = client.get_json("/api/version")
    if not isinstance(body, dict) or not _text(body.get("session_name")):
        raise InventoryError("/api/version answered without a session")
    return body


def _unusable(answers: _Answers, nodes: list[FoundNode], actors: list[LiveActor]) -> Iterator[str]:
    """Name rows that came but say nothing usable; no nodes at all is no picture of a cluster either."""
    if not answers.nodes.rows and not answers.failures:
        yield "the cluster lists no nodes at all"
    for what, rows, read in (("nodes", answers.nodes.rows, nodes), ("actors", answers.actors.rows, actors)):
        if len(read) < len(rows):
            yield f"{len(rows) - len(read)} of {len(rows)} rows of {what} cannot be read"


def _hidden_marks(parts: Parts) -> Iterator[str]:
    hidden = [found.actor.name for found in parts.replicas if found.hidden]
    if hidden:
        yield (f"the marks of {len(hidden)} replicas are hidden ({', '.join(hidden[:3])}): the dashboard takes us for "
               "a browser; does a proxy rewrite the User-Agent?")


def _raylet(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    raylet = entry.get("raylet")
    return raylet if isinstance(raylet, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
