"""Prefetch: fetch the weights of a model to the disks of nodes before a replica needs them. It starts no replica.

It is a verb, and the last step of an apply for the weights that the fleet file keeps on nodes.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import groupby
from typing import List, NamedTuple, Optional, Sequence, Set

from .messages import GotWeights, Place, ServedWeights
from .model_files import fetch_document, note_cold, noted, serving_now, session_secret, wanted_by
from .on_nodes import Asked
from .records import UNFETCHED, add
from .report import StartFailed, utc_now
from .run import OnNodes, Run, Steps, Task, outcome_of
from .run_messages import ApplyRequest, EventStream, Outcome, PrefetchMember, PrefetchRequest
from .weights.check import Verified, check_changed
from .weights.fetch import Fetch
from .weights.index import WeightsError
from .weights.store import cache_root
from .wire import document_of

MARGIN_S = 30.0
MAX_PARALLEL = 4
"""Nodes that fetch at a time in an apply: a source serves no more."""


class Order(NamedTuple):
    """What a node fetches, and how many seconds it has for all of it."""

    members: Sequence[PrefetchMember]
    timeout: float


class PrefetchResult(NamedTuple):
    """The result for one artifact on a node: what was fetched, or the trouble."""

    artifact: str
    fetched: Optional[GotWeights] = None
    trouble: Optional[str] = None


class _Node:
    """A node and its order. `busy` = the nodes that carry out one now, at most `at_once`; a node does one at a time."""

    def __init__(self, node_id: str, order: Order, busy: Set[str], at_once: int) -> None:
        self.id, self._order, self._busy, self._at_once = node_id, order, busy, at_once
        self._asked: Optional[Asked[List[PrefetchResult]]] = None
        self._rows: Optional[List[PrefetchResult]] = None

    def begin(self) -> bool:
        """Ask the node, if its turn has come; returns whether it has."""
        if self._asked is None and self.id not in self._busy and len(self._busy) < self._at_once:
            self._busy.add(self.id)
            self._asked = Asked(fetch_here, self.id, self._order, self._order.timeout + MARGIN_S)
        return self._asked is not None

    def rows(self) -> Optional[List[PrefetchResult]]:
        """Return the result for each member of the order, or None while the node has not answered."""
        answer = self._asked.answer() if self._asked is not None and self._rows is None else None
        if answer is not None:
            self._busy.discard(self.id)
            self._rows = answer.content or [
                PrefetchResult(member.weights.artifact, trouble=answer.trouble) for member in self._order.members]
        return self._rows


class FetchTask(Task):
    """The fetch of one artifact to one node: the order's member number `index`.

    `fleet` = that of the apply whose plan wants it, "" = the verb. `left` = it is for the next run. A failure in an
    apply is recorded, so later plans skip the node for a while.
    """

    def __init__(self, run: Run, subject: OnNodes, node: _Node, index: int, fleet: str = "",
                 left: bool = False) -> None:
        super().__init__(f"{subject.model} on {node.id}", subject)
        self._run, self._node, self._index, self._fleet, self._left = run, node, index, fleet, left

    def may_begin(self) -> bool:
        """Return whether the node was asked."""
        return not self._left and self._node.begin()

    @property
    def may_be_left(self) -> bool:
        """Return whether this is for the next run."""
        return self._left

    def steps(self) -> Steps:
        """Wait for the node's answer, and report this artifact's result."""
        while (rows := self._node.rows()) is None:
            yield
        row = rows[self._index]
        message, fields = row.trouble or "fetched", {}
        if self._fleet:
            [name] = self.subject.nodes
            if row.trouble:
                failed = {"nodeId": self._node.id, "artifact": row.artifact, "at": utc_now()}
                add(UNFETCHED, f"{self._node.id}/{row.artifact}", failed, self._fleet)
            where = f"not on {name}: {row.trouble}" if row.trouble else f"on {name}"
            message = f"{self.subject.model}: weights {where}"
            fields = {"model": self.subject.model, "node": name}
        self._run.events.emit("weightsFetched", message, level="warning" if row.trouble else "info", **fields,
                              nodeId=self._node.id, **document_of(row))
        if row.trouble:
            return outcome_of(self.subject, "failed", "WEIGHTS_FAILED", row.trouble, level="COLD")
        place = Place(weights=ServedWeights(row.artifact, None, fetched=row.fetched))
        return outcome_of(self.subject, "ready", places=(place,), level="COLD")

    def at_end(self, interrupted: bool) -> Outcome:  # noqa: ARG002  # a run that is not interrupted awaits all
        """Return the outcome of an interrupted fetch."""
        return outcome_of(self.subject, "skipped", "INTERRUPTED", "the apply was interrupted", level="COLD")


def fetches_of(request: ApplyRequest, run: Run) -> List[Task]:
    """Return the fetches of a plan as tasks.

    A run that does not wait fetches on `MAX_PARALLEL` nodes only, so a watcher can plan again soon: the next one
    continues.
    """
    tasks: List[Task] = []
    busy: Set[str] = set()
    orders = [(action, node_id, list(members)) for action in request.plan.actions if action.op == "prefetch"
              for node_id, members in groupby(action.members, lambda member: member.node_id)]
    for number, (action, node_id, planned) in enumerate(orders):
        spec = request.plan.specs[action.spec_hash]
        members = [PrefetchMember(member.weights, member.variables, spec.engine(member.group, member.rank))
                   for member in planned if member.weights]
        node = _Node(node_id, Order(members, action.lifecycle.startup_timeout), busy, MAX_PARALLEL)
        subject, left = OnNodes(action.model, (planned[0].node,)), not request.wait and number >= MAX_PARALLEL
        fleet = request.plan.fleet.name
        tasks += [FetchTask(run, subject, node, index, fleet, left) for index in range(len(members))]
    return tasks


def run_prefetch(request: PrefetchRequest, events: EventStream) -> int:
    """Fetch on the nodes of the request, a few at a time; returns 0 if all fetches succeeded, else 3."""
    return PrefetchRun(request, events).carry_out()


class PrefetchRun(Run):
    """A run of the verb."""

    def __init__(self, request: PrefetchRequest, events: EventStream) -> None:
        super().__init__(request, events)
        busy: Set[str] = set()
        for node_id, members in request.nodes.items():
            node = _Node(node_id, Order(members, request.timeout), busy, request.at_once)
            self.tasks += [FetchTask(self, OnNodes("", (node_id,)), node, index) for index in range(len(members))]

    def end(self) -> int:
        """Write the summary."""
        failed = sum(task.outcome is None or task.outcome.outcome != "ready" for task in self.tasks)
        return self.events.end(3 if failed else 0, f"{failed} failed" if failed else "all weights are there",
                               interrupted=self.stop.is_set())


def fetch_here(order: Order) -> List[PrefetchResult]:
    """Fetch the weights of the members in the order, one after another, to the node on which this runs."""
    deadline = time.monotonic() + order.timeout
    return [_fetched(member, deadline) for member in order.members]


def _fetched(member: PrefetchMember, deadline: float) -> PrefetchResult:
    artifact = member.weights.artifact
    try:
        wanted = wanted_by(member.weights, member.engine, member.variables, session_secret())
        root = cache_root()
        verified = Verified(root, wanted.artifact, wanted.secret)
        got = noted(Fetch(root, wanted, deadline, lambda _: None, look=partial(serving_now, artifact)))
        if check_changed(got.entry, got.held, verified):  # no engine waits for this
            got = noted(Fetch(root, wanted, deadline, lambda _: None, look=partial(serving_now, artifact)))
        note_cold(root, got, verified)
        return PrefetchResult(artifact, fetch_document(got))
    except (StartFailed, WeightsError) as error:
        return PrefetchResult(artifact, trouble=str(error))
