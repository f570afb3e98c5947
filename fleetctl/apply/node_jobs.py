"""Jobs of the agent about nodes: the doctor's look, its repairs, weights fetched to disks or removed from them.

Apply never imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleetctl.apply import jobs
from fleetctl.apply.follow import Follower, Wording
from fleetctl.apply.outcome import raise_if_refused
from fleetctl.apply.record import Starter
from fleetctl.documents.cold import FetchedWeights, NodeCache
from fleetctl.documents.diagnosis import ExaminedNode, LeftLock, Need, OrphanProcess, Repaired
from fleetctl.documents.events import Event
from fleetctl.errors import ApplyError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import EXAMINE
from fleetctl.inventory.used import PlacementGroup
from fleetctl.planner.weights import MOST_FETCHES
from fleetctl.version import __version__

NODE_S, MARGIN_S = 60.0, 60.0
"""How long the nodes may take together, and how much longer the job."""

REPAIR, PRUNE, PREFETCH = "repair", "prune", "prefetch"
DOCTOR = Wording("job of the doctor", *["`fleetctl doctor` shows what is left"] * 2)
PRUNE_WORDING = Wording("job", *["`fleetctl prune --dry-run` shows what is left"] * 2)
PREFETCH_WORDING = Wording(PREFETCH, *["the same command again continues where it ended"] * 2)
_LOCKS = TypeAdapter(list[LeftLock])


@dataclass(frozen=True, slots=True)
class Asker:
    """The cluster, the namespace of our replicas there, in whose name a job is submitted, and what people call it."""

    client: DashboardClient
    namespace: str
    starter: Starter
    wording: Wording = DOCTOR

    def run(self, verb: str, job: str, request: Mapping[str, Any], wait_s: float = NODE_S + MARGIN_S,
            heard: Callable[[Event], None] = lambda _: None) -> list[Event]:
        """Submit the agent with a request and return its events, each of which is `heard` as it comes.

        Raises ApplyError and WaitTimeout.
        """
        metadata = {"namespace": self.namespace, **self.starter.metadata()}
        jobs.submit(self.client, job, verb, {"timeout": NODE_S, **request, "job": job, "toolVersion": __version__},
                    namespace=self.namespace, metadata=metadata, follow_up=self.wording.afterwards)
        events: list[Event] = []

        def take(event: Event) -> None:
            events.append(event)
            heard(event)

        raise_if_refused(Follower(self.client, job, self.wording, wait_timeout_s=wait_s).summary(take))
        return events


@contextmanager
def reading_answers() -> Iterator[None]:
    """Turn an answer that cannot be read into an ApplyError."""
    try:
        yield
    except ValidationError:
        raise ApplyError("the agent answered something that this fleetctl cannot read") from None


def examine(
    asker: Asker, job: str, needs: Mapping[str, Sequence[Need]]
) -> tuple[dict[str, ExaminedNode], list[LeftLock]]:
    """Return what each node answered, by id, and the locks that were left; `needs` are the questions by node id.

    It reads only, and claims nothing.
    """
    events = asker.run(EXAMINE, job, {"nodes": {node_id: [need._asdict() for need in asked]
                                                for node_id, asked in needs.items()}})
    with reading_answers():
        nodes = [ExaminedNode.model_validate(one.model_extra) for one in events if one.type == "nodeExamined"]
        locks = [lock for one in events if one.type == "locksLeft"
                 for lock in _LOCKS.validate_python((one.model_extra or {}).get("locks", []))]
    return {node.node_id: node for node in nodes}, locks


@dataclass(frozen=True, slots=True)
class Dead:
    """What is ours and dead; `orphans` by the id of their node."""

    groups: Sequence[PlacementGroup] = ()
    orphans: Mapping[str, Sequence[OrphanProcess]] = field(default_factory=dict)
    locks: Sequence[LeftLock] = ()

    def __bool__(self) -> bool:
        return bool(self.groups or self.orphans or self.locks)


def repair(asker: Asker, job: str, dead: Dead) -> list[Repaired]:
    """Remove what is ours and dead, and return what became of each; raises ApplyError and WaitTimeout."""
    events = asker.run(REPAIR, job, {
        "groups": [{"id": group.group_id, "name": group.name} for group in dead.groups],
        "orphans": {node_id: [one.model_dump(by_alias=True) for one in found] for node_id, found in
                    dead.orphans.items()},
        "locks": [one.model_dump(by_alias=True) for one in dead.locks]})
    with reading_answers():
        return [Repaired.model_validate({**(one.model_extra or {}), "message": one.message})
                for one in events if one.type == "repaired"]


def ask_caches(asker: Asker, verb: str, job: str, about: Mapping[str, Sequence[str]]) -> list[NodeCache]:
    """Return what each node has: CACHES but for the artifacts to keep, PRUNE after those are removed that nothing uses.

    `about` = these artifacts by node id. Raises ApplyError and WaitTimeout.
    """
    events = asker.run(verb, job, {"nodes": about})
    with reading_answers():
        answers = [NodeCache.model_validate(one.model_extra) for one in events if one.type == "weightsCached"]
    found = {one.node_id: one for one in answers}
    return [found.get(node_id) or NodeCache(node_id=node_id, trouble="no answer") for node_id in about]


def prefetch(
    asker: Asker, job: str, orders: Mapping[str, Sequence[Mapping[str, Any]]], timeout_s: float,
    heard: Callable[[FetchedWeights], None],
) -> list[FetchedWeights]:
    """Let nodes fetch weights, and return what became of each artifact, `heard` as it ends; an interrupt stops it.

    A node has `timeout_s`. Raises ApplyError and WaitTimeout.
    """
    rows: list[FetchedWeights] = []

    def take(event: Event) -> None:
        if event.type == "weightsFetched":
            rows.append(FetchedWeights.model_validate(event.model_extra))
            heard(rows[-1])

    rounds = -(-len(orders) // MOST_FETCHES)
    try:
        with reading_answers():
            asker.run(PREFETCH, job, {"nodes": orders, "timeout": timeout_s, "atOnce": MOST_FETCHES},
                      wait_s=rounds * (timeout_s + MARGIN_S) + MARGIN_S, heard=take)
    except KeyboardInterrupt:
        jobs.stop(asker.client, job)
        raise
    answered = {row.node_id for row in rows}
    return rows + [FetchedWeights(node_id=node_id, artifact=member["weights"]["artifact"], trouble="no answer")
                   for node_id, members in orders.items() if node_id not in answered for member in members]
