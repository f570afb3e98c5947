"""Ask the nodes of a cluster what they have: a job of the agent that reads only, and claims nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleetctl.apply import jobs
from fleetctl.apply.follow import Follower, Wording
from fleetctl.apply.outcome import raise_if_refused
from fleetctl.apply.record import Starter, doctor_metadata
from fleetctl.documents.events import Event, RunSummary
from fleetctl.documents.examined_node import ExaminedNode, LeftLock, Need
from fleetctl.errors import ApplyError
from fleetctl.inventory.client import DashboardClient
from fleetctl.inventory.jobs import EXAMINE
from fleetctl.version import __version__

NODE_S, MARGIN_S = 60.0, 60.0
"""How long the nodes may take together, and how much longer the job."""

DOCTOR = Wording("job of the doctor", *["`fleetctl doctor` shows what is left"] * 2)
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
        metadata = doctor_metadata(self.namespace, self.starter)
        jobs.submit(self.client, jobs.Submission(job, verb, self.namespace, metadata, self.wording.afterwards),
                    {"timeout": NODE_S, **request, "job": job, "toolVersion": __version__})
        events: list[Event] = []
        for event in Follower(self.client, job, self.wording, wait_timeout_s=wait_s).events():
            events.append(event)
            heard(event)
            if isinstance(event, RunSummary):
                raise_if_refused(event)
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
    """Return what each node answered, by id, and the locks that were left; `needs` are the questions by node id."""
    events = asker.run(EXAMINE, job, {"nodes": {node_id: [need._asdict() for need in asked]
                                                for node_id, asked in needs.items()}})
    with reading_answers():
        nodes = [ExaminedNode.model_validate(one.model_extra) for one in events if one.type == "nodeExamined"]
        locks = [lock for one in events if one.type == "locksLeft"
                 for lock in _LOCKS.validate_python((one.model_extra or {}).get("locks", []))]
    return {node.node_id: node for node in nodes}, locks
