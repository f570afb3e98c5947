"""Reads a live cluster from its Ray dashboard: all GETs at once. A part that fails is named in the warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from fleetctl.collector import collector_paused
from fleetctl.documents.base import moment_at
from fleetctl.documents.inventory import CARD_FAILURES, ClusterIdentity, Inventory, Node, is_lost
from fleetctl.documents.quantity import version_numbers
from fleetctl.errors import ClusterRefused, ClusterUnreachable, InventoryError, PathNotServed
from fleetctl.inventory.actors import Listing, LiveActor, Row, list_live_actors, list_rows
from fleetctl.inventory.assemble import (
    Parts,
    build_nodes,
    consistency_warnings,
    contradictions,
    list_placement_groups,
    nodes_left_out,
    read_node,
)
from fleetctl.inventory.cards import holds_cards, pids_of
from fleetctl.inventory.claims import AgentView, RaySum, read_sums
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.cold import with_cold, with_unfetched, with_wrong
from fleetctl.inventory.failures import Ended, after_failures, drivers_of, find_planned, list_ended, newest_starts
from fleetctl.inventory.json_values import list_of, object_of, text_of
from fleetctl.inventory.records import (
    DRAINING,
    NOT_READY,
    NOTHING_KNOWN,
    Records,
    has_ended,
    pauses_in,
    read_records,
    with_draining,
    with_notes,
    with_runs_of,
)
from fleetctl.inventory.reloads import failed_reloads, with_reloads
from fleetctl.inventory.replicas import find_replicas, with_readiness
from fleetctl.inventory.snapshot import Snapshot
from fleetctl.inventory.uptimes import with_deaths, with_uptimes

SUMMARY_PATH = "/nodes"
SUMMARY_PARAMS = {"view": "summary", "nocache": "1"}
"""Without `nocache`, Ray serves its cached answer, however old, and refreshes the cache only afterwards."""

OLDEST_RAY = (2, 49)
"""The agent refuses older versions; see agent/__main__.py."""

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Answers:
    """The answers, part by part; `failures` says why a part is missing or incomplete."""

    nodes: Listing[Row] = field(default_factory=Listing)
    actors: Listing[LiveActor] = field(default_factory=Listing)
    ended: Ended = field(default_factory=Ended)
    records: Records = NOTHING_KNOWN
    summary: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sums: Mapping[str, RaySum] = field(default_factory=dict)
    version: Mapping[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Live:
    """A running cluster. `clock` = this machine's (RFC 3339, UTC), for a cluster whose answers do not tell the time.

    `namespace` is the Ray namespace of our replicas. `agent` = an agent's recent view of the nodes, which wins over the
    dashboard; `cold` = selectors of the nodes whose disks are listed.
    """

    client: DashboardClient
    clock: Callable[[], str]
    namespace: str = "fleet"
    agent: AgentView | None = None
    cold: Sequence[Mapping[str, str]] = ()

    def now(self) -> str:
        """Return the cluster's time (RFC 3339, UTC), by which notes, plans and cooldowns end; see `clock`."""
        at = self.client.cluster_time()
        return self.clock() if at is None else moment_at(at)

    def read(self, *, ages: bool = False) -> Inventory:
        """Return the inventory; `ages` = also read when replicas that were never restarted became ready, and notes
        about wrong weights.

        A part that fails, is refused or is truncated makes `complete` false and is named in `warnings`, unless Ray's
        own sums make up for it. Raises ClusterUnreachable or ClusterRefused when the nodes cannot be requested.
        """
        with collector_paused(lasting=True):
            inventory = _read(self, ages=ages)
            if ages and any(member.weights for replica in inventory.replicas for member in replica.members):
                inventory = with_wrong(self.client, inventory)
            return with_cold(self.client, inventory, self.cold) if self.cold else inventory


InventorySource = Live | Snapshot


def _read(live: Live, *, ages: bool) -> Inventory:
    answers, now = _ask(live.client, live.namespace), live.now()
    actors = answers.actors.rows
    nodes = _nodes(answers, live.agent)
    records, unread = with_runs_of(live.client, answers.records, drivers_of([*actors, *answers.ended.silent]))
    planned = find_planned(live.client, records.runs, [*actors, *answers.ended.silent])
    seen_by_agent = live.agent.sums(nodes) if live.agent else {}
    sums = {**answers.sums, **seen_by_agent}
    version = text_of(answers.version.get("ray_version"))
    found_replicas = find_replicas(actors, live.namespace, planned, records.runs, nodes)
    # these versions report a percentage of memory transfers as the memory of a process (ray#61456)
    in_percent = version is None or (2, 50) <= version_numbers(version) < (2, 57)
    if not_ready := records.of(NOT_READY):
        found_replicas = with_readiness(found_replicas, not_ready)
    parts = Parts(nodes, actors, found_replicas, answers.summary, sums, memory_by_process=not in_percent)
    if any(node.state != "DEAD" for node in nodes) and not sums:
        parts = _without_sums(live.client, parts, answers)
    elif answers.actors.cut:
        answers.notes.append(f"{answers.actors.cut}: the claims of some actors are unknown")
    failures = [*answers.failures, *_unusable(answers, nodes), *_unknown(parts, unread),
                *contradictions(parts)]
    marked = with_draining(with_reloads([found.replica for found in parts.replicas], records), records.runs,
                           live.namespace)
    replicas, no_times = with_uptimes(live.client, marked, live.namespace, now, all_replicas=ages)
    built = build_nodes(parts)
    tried_again = frozenset[str]().union(*(found.earlier_tries for found in parts.replicas))
    failed = [*(failure for failure in with_deaths(live.client, answers.ended.failures, planned, now)
                if failure.actor_id not in tried_again or failure.code in CARD_FAILURES),
              *failed_reloads(records, live.namespace)]
    dead = {node.id for node in built if node.state == "DEAD"}
    starts = [*answers.ended.starts, *(found.start for found in parts.replicas if found.start)]
    lost = [found.success for found in parts.replicas if found.success and is_lost(found.replica, dead)]
    return Inventory(
        observed_at=now,
        source=live.client.base_url,
        complete=not failures,
        unread=failures,
        warnings=[*failures, *answers.notes, *no_times,
                  *nodes_left_out(answers.nodes.rows, {node.id: node.name for node in built}),
                  *consistency_warnings(parts, built)],
        cluster=ClusterIdentity(address=live.client.base_url, ray_version=version,
                                session_id=text_of(answers.version.get("session_name"))),
        nodes=with_unfetched(with_notes(built, records, now), records),
        replicas=replicas,
        failures=failed,
        successes=list(after_failures([*answers.ended.successes, *lost], failed)),
        starts=newest_starts(starts),
        pauses=[pause for pause in pauses_in(records, live.namespace) if not has_ended(pause, now)])


def _ask(client: DashboardClient, namespace: str) -> _Answers:
    """Send all requests at once and wait for all answers; a failed part is empty and named."""
    answers = _Answers()
    with ThreadPoolExecutor(max_workers=6, thread_name_prefix="inventory") as pool:
        nodes = pool.submit(list_rows, client, "nodes", lambda row: row)
        actors = pool.submit(list_live_actors, client)
        ended = pool.submit(list_ended, client, namespace)
        records = pool.submit(read_records, client)
        summary = pool.submit(_read_summary, client)
        version = pool.submit(_read_version, client)
    if isinstance(error := nodes.exception(), (ClusterUnreachable, ClusterRefused)):
        raise error
    answers.nodes = _result("the nodes could not be read", nodes, Listing(), answers.failures)
    answers.actors = _result("the actors could not be read", actors, Listing(), answers.failures)
    answers.ended = _result("the failures could not be read, so nothing cools down", ended, Ended(), answers.notes)
    withheld = isinstance(records.exception(), (ClusterRefused, PathNotServed))  # then nobody can submit an apply
    answers.records = _result("the jobs could not be read, so cordons are unknown", records, NOTHING_KNOWN,
                              answers.notes if withheld else answers.failures)
    answers.failures += answers.records.failures
    answers.notes += answers.records.warnings
    answers.summary, answers.sums = _result("the cards could not be read", summary, ({}, {}), answers.failures)
    answers.version = _result("the cluster's version and session could not be read", version, {}, answers.failures)
    answers.failures += [*answers.nodes.losses, *answers.actors.problems]
    answers.notes += version_warnings(text_of(answers.version.get("ray_version")) or "")
    return answers


def _result(problem: str, pending: Future[Answer], empty: Answer, failures: list[str]) -> Answer:
    try:
        return pending.result()
    except InventoryError as error:
        failures.append(f"{problem}: {error.message}")
        return empty


def _nodes(answers: _Answers, agent: AgentView | None) -> list[Node]:
    """Return the nodes. No GET shows a drain, so the nodes that an agent found draining are marked here."""
    draining = {record.subject for record in answers.records.of(DRAINING)} | (agent.draining if agent else set())
    records = {node_id: entry["raylet"] for node_id, entry in answers.summary.items()}
    found = [read_node(row, records.get(str(row.get("node_id")), {})) for row in answers.nodes.rows]
    return [node.model_copy(update={"state": "DRAINING"}) if node.state == "ALIVE" and node.id in draining else node
            for node in found if node is not None]


def _without_sums(client: DashboardClient, parts: Parts, answers: _Answers) -> Parts:
    """Add the placement groups, which stand in for Ray's missing sums; then no list may be cut."""
    try:
        groups = list_placement_groups(client)
    except InventoryError as error:
        answers.failures.append(f"the placement groups could not be read: {error.message}")
        return parts
    cut = [*groups.losses, *([answers.actors.cut] if answers.actors.cut else [])]
    answers.failures += [f"{problem}, and Ray gives no sums of what is in use" for problem in cut]
    answers.notes.append("Ray gives no sums of what is in use: cards that Ray tasks hold are unknown")
    return replace(parts, groups=groups.rows)


def _read_summary(client: DashboardClient) -> tuple[Mapping[str, Mapping[str, Any]], Mapping[str, RaySum]]:
    """Return the dashboard's node summary: its entries and Ray's sums of what is granted, both by node id."""
    entries, siblings = client.read_entries(SUMMARY_PATH, ("data", "summary"), SUMMARY_PARAMS, _used_fields)
    return ({node_id: entry for entry in entries if (node_id := text_of(entry["raylet"]["nodeId"]))},
            read_sums(siblings.get("nodeLogicalResources")))


def _used_fields(_: str, entry: object) -> Mapping[str, Any]:
    """Keep the fields of a node's entry that are read later: a tenth of it."""
    raylet = object_of(object_of(entry).get("raylet"))
    kept = {key: raylet.get(key) for key in ("nodeId", "state", "stateSnapshot", "nodeManagerHostname")}
    cards = {key: object_of(entry).get(key) for key in ("gpus", "mem")}
    pids = pids_of(cards)
    workers = [worker for worker in list_of(raylet.get("coreWorkersStats"))
               if holds_cards(worker) or object_of(worker).get("pid") in pids]
    return {**cards, "raylet": {**kept, "coreWorkersStats": workers}}


def _read_version(client: DashboardClient) -> Mapping[str, Any]:
    body = client.get_json("/api/version")
    if not isinstance(body, dict) or not text_of(body.get("session_name")):
        raise InventoryError("/api/version answered without a session")
    return body


def version_warnings(version: str) -> Iterator[str]:
    """Yield a warning if this version of Ray cannot run the agent."""
    if () < version_numbers(version) < OLDEST_RAY:
        yield f"the cluster runs Ray {version}; an apply needs {OLDEST_RAY[0]}.{OLDEST_RAY[1]} or later"


def _unusable(answers: _Answers, nodes: Sequence[Node]) -> Iterator[str]:
    """Name rows that cannot be read, and a list without any node."""
    if not answers.nodes.rows and not answers.failures:
        yield "the cluster lists no nodes at all"
    if unread := len(answers.nodes.rows) - len(nodes):
        yield f"{unread} of {len(answers.nodes.rows)} rows of nodes cannot be read"


def _unknown(parts: Parts, unread: Set[str]) -> Iterator[str]:
    """Name the starting replicas without a repr whose jobs could not be read; `unread` = the drivers of these jobs."""
    names = [found.actor.name for found in parts.replicas if found.actor.job_id in unread and not found.actor.repr_name
             and found.replica.replica_id is not None and found.actor.state != "ALIVE"]
    if names:
        yield f"the fleet of {', '.join(names[:3])}{', ...' if len(names) > 3 else ''} is unknown"
