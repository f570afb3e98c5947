"""Agent jobs about nodes, and notes: the doctor's examination and repairs, fetching weights to disks and removing them.

Apply never imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleetctl.apply import jobs
from fleetctl.apply.follow import CONTINUE_HINT, RunFollower, Wording
from fleetctl.apply.outcome import raise_if_refused
from fleetctl.apply.prepare import Starter
from fleetctl.documents.answers import FetchedWeights, NodeCache
from fleetctl.documents.diagnosis import ExaminedNode, LeftLock, Need, OrphanProcess, Repaired
from fleetctl.documents.events import Event
from fleetctl.errors import ApplyError
from fleetctl.inventory.assemble import PlacementGroup
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import EXAMINE
from fleetctl.inventory.records import CORDON, PAUSE, RESUME, UNCORDON
from fleetctl.planner.weights import MOST_FETCHES
from fleetctl.version import __version__

NODE_S, MARGIN_S = 60.0, 60.0
"""Time limit for all nodes together, and the extra time for the job around them."""

REPAIR, PRUNE, PREFETCH = "repair", "prune", "prefetch"
DOCTOR = Wording("doctor job", *["`fleetctl doctor` shows the remaining problems"] * 2)
NOTE_WORDING = Wording("note", *["`fleetctl inventory` shows whether it was written"] * 2)
PREFETCH_WORDING = Wording(PREFETCH, *[CONTINUE_HINT] * 2)
_LOCKS = TypeAdapter(list[LeftLock])


@dataclass(frozen=True, slots=True)
class JobRunner:
    """Runs agent jobs in one namespace of a cluster, in the name of `starter`; `wording` is for messages."""

    client: DashboardClient
    namespace: str
    starter: Starter
    wording: Wording = DOCTOR
    patience: jobs.Patience | None = None

    def run(self, verb: str, job: str, request: Mapping[str, Any], wait_s: float = NODE_S + MARGIN_S,
            relay: Callable[[Event], None] = lambda _: None,
            more: Mapping[str, str] | None = None) -> list[Event]:
        """Submit the agent with a request and return its events; each is passed to `relay` as it arrives.

        `more` = more metadata of the job. Raises ApplyError and WaitTimeout.
        """
        metadata = {"namespace": self.namespace, **(more or {}), **self.starter.metadata()}
        jobs.submit(self.client, job, verb, {"timeout": NODE_S, **request, "job": job, "toolVersion": __version__},
                    namespace=self.namespace, metadata=metadata, follow_up=self.wording.afterwards,
                    patience=self.patience)
        events: list[Event] = []

        def receive(event: Event) -> None:
            events.append(event)
            relay(event)

        raise_if_refused(RunFollower(self.client, job, self.wording, wait_timeout_s=wait_s).summary(receive))
        return events


def write_note(runner: JobRunner, verb: str, subject: str, note: Mapping[str, str], job: str) -> None:
    """Write a note, and return once the cluster has it as the record of `subject` (`inventory/records.py`).

    Earlier releases read notes about nodes in the metadata of the job. Raises ApplyError and WaitTimeout.
    """
    kind = {UNCORDON: CORDON, RESUME: PAUSE}.get(verb, verb)
    payload = {"verb": verb, **note, **runner.starter.metadata()}
    runner.run(verb, job, {"kind": kind, "subject": subject, "payload": payload}, more=note)


@contextmanager
def _valid_answers() -> Iterator[None]:
    """Turn an answer that cannot be parsed into an ApplyError."""
    try:
        yield
    except ValidationError:
        raise ApplyError("this fleetctl cannot read the agent's answer") from None


def examine(
    runner: JobRunner, job: str, needs: Mapping[str, Sequence[Need]]
) -> tuple[dict[str, ExaminedNode], list[LeftLock], str]:
    """Examine nodes and return the result by node id, the locks left behind, and what is wrong with the autoscaler.

    `needs` = what to check, by node id.

    It only reads, and claims no resources.
    """
    events = runner.run(EXAMINE, job, {"nodes": {node_id: [need._asdict() for need in node_needs]
                                                 for node_id, node_needs in needs.items()}})
    with _valid_answers():
        nodes = [ExaminedNode.model_validate(event.model_extra) for event in events if event.type == "nodeExamined"]
        locks = [lock for event in events if event.type == "locksLeft"
                 for lock in _LOCKS.validate_python((event.model_extra or {}).get("locks", []))]
    silent = next((event.message for event in events if event.type == "autoscalerSilent"), "")
    return {node.node_id: node for node in nodes}, locks, silent


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What dead replicas and runs of fleetctl left in the cluster; `orphans` = processes by node id."""

    groups: Sequence[PlacementGroup] = ()
    orphans: Mapping[str, Sequence[OrphanProcess]] = field(default_factory=dict)
    locks: Sequence[LeftLock] = ()

    def __bool__(self) -> bool:
        return bool(self.groups or self.orphans or self.locks)


def repair(runner: JobRunner, job: str, leftovers: Leftovers) -> list[Repaired]:
    """Remove leftovers and return the result for each; raises ApplyError and WaitTimeout."""
    events = runner.run(REPAIR, job, {
        "groups": [{"id": group.group_id, "name": group.name} for group in leftovers.groups],
        "orphans": {node_id: [process.model_dump(by_alias=True) for process in processes]
                    for node_id, processes in leftovers.orphans.items()},
        "locks": [lock.model_dump(by_alias=True) for lock in leftovers.locks]})
    with _valid_answers():
        return [Repaired.model_validate({**(event.model_extra or {}), "message": event.message})
                for event in events if event.type == "repaired"]


def ask_caches(runner: JobRunner, verb: str, job: str, artifacts: Mapping[str, Sequence[str]]) -> list[NodeCache]:
    """Run CACHES or PRUNE and return the cache of each node; raises ApplyError and WaitTimeout.

    `artifacts`, by node id: CACHES leaves these out of the answer; PRUNE removes these, unless in use.
    """
    events = runner.run(verb, job, {"nodes": artifacts})
    with _valid_answers():
        answers = [NodeCache.model_validate(event.model_extra) for event in events if event.type == "weightsCached"]
    by_node = {cache.node_id: cache for cache in answers}
    return [by_node.get(node_id) or NodeCache(node_id=node_id, trouble="no answer") for node_id in artifacts]


def prefetch(
    runner: JobRunner, job: str, orders: Mapping[str, Sequence[Mapping[str, Any]]], timeout_s: float,
    relay: Callable[[FetchedWeights], None],
) -> list[FetchedWeights]:
    """Fetch weights to nodes and return the result for each artifact, passed to `relay` as it ends.

    Each node may take `timeout_s`. An interrupt stops the job. Raises ApplyError and WaitTimeout.
    """
    rows: list[FetchedWeights] = []

    def receive(event: Event) -> None:
        if event.type == "weightsFetched":
            rows.append(FetchedWeights.model_validate(event.model_extra))
            relay(rows[-1])

    rounds = -(-len(orders) // MOST_FETCHES)
    try:
        with _valid_answers():
            runner.run(PREFETCH, job, {"nodes": orders, "timeout": timeout_s, "atOnce": MOST_FETCHES},
                       wait_s=rounds * (timeout_s + MARGIN_S) + MARGIN_S, relay=receive)
    except KeyboardInterrupt:
        jobs.stop(runner.client, job)
        raise
    answered = {row.node_id for row in rows}
    return rows + [FetchedWeights(node_id=node_id, artifact=member["weights"]["artifact"], trouble="no answer")
                   for node_id, members in orders.items() if node_id not in answered for member in members]
